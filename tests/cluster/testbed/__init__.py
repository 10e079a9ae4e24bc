"""A real one-node Kubernetes cluster on this Linux machine, with NVIDIA's real parts on a mock NVML.

See README.md in the folder above for what is real and what is a stand-in.
"""
