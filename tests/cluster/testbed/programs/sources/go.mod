// Modules of which only files are taken: charts and custom resource definitions. Nothing here is built.
module sharebench.invalid/testbed/sources

go 1.25.0

require (
	github.com/NVIDIA/k8s-device-plugin v0.19.3
	github.com/aws/karpenter-provider-aws v1.14.1
	github.com/prometheus-operator/prometheus-operator v0.93.1
	sigs.k8s.io/node-feature-discovery v0.18.3
)
