"""One CA, the certificates of the components, and a kubeconfig for each client; by openssl."""

from __future__ import annotations

import base64
import json
import subprocess
from pathlib import Path

from cluster.testbed.instance import NODE, SECOND_NODE, SERVICE_IP, Instance

DAYS = "30"
API_NAMES = ("DNS:localhost", "DNS:kubernetes", "DNS:kubernetes.default", "DNS:kubernetes.default.svc")
# user of a kubeconfig -> certificate subject for RBAC
CLIENTS = {
    "admin": "/O=system:masters/CN=admin",
    NODE: f"/O=system:nodes/CN=system:node:{NODE}",
    SECOND_NODE: f"/O=system:nodes/CN=system:node:{SECOND_NODE}",
    "controller-manager": "/CN=system:kube-controller-manager",
    "scheduler": "/CN=system:kube-scheduler",
    "proxy": "/CN=system:kube-proxy",
}


def openssl(*arguments: str, folder: Path) -> None:
    subprocess.run(["openssl", *arguments], cwd=folder, check=True, capture_output=True)


def key(folder: Path, name: str) -> None:
    openssl("ecparam", "-name", "prime256v1", "-genkey", "-noout", "-out", f"{name}.key", folder=folder)


def certificate(folder: Path, name: str, subject: str, *alternatives: str) -> None:
    """Create NAME.key and NAME.crt, signed by the CA, for servers and clients, with `IP:...` or `DNS:...` names."""
    extensions = [
        "basicConstraints=critical,CA:FALSE",
        "keyUsage=critical,digitalSignature",
        "extendedKeyUsage=serverAuth,clientAuth",
        *([f"subjectAltName={','.join(alternatives)}"] if alternatives else []),
    ]
    (folder / f"{name}.ext").write_text("\n".join(extensions) + "\n")
    key(folder, name)
    openssl("req", "-new", "-key", f"{name}.key", "-subj", subject, "-out", f"{name}.csr", folder=folder)
    sign = ["x509", "-req", "-in", f"{name}.csr", "-CA", "ca.crt", "-CAkey", "ca.key", "-CAcreateserial", "-days", DAYS]
    openssl(*sign, "-extfile", f"{name}.ext", "-out", f"{name}.crt", folder=folder)


def kubeconfig(instance: Instance, user: str) -> str:
    """A user's kubeconfig in JSON, which is YAML too."""

    def data(file: str) -> str:
        return base64.b64encode((instance.pki / file).read_bytes()).decode()

    cluster = {"server": f"https://{instance.node_ip}", "certificate-authority-data": data("ca.crt")}
    credentials = {"client-certificate-data": data(f"{user}.crt"), "client-key-data": data(f"{user}.key")}
    name = f"testbed-{instance.name}"
    return json.dumps(
        {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": name, "cluster": cluster}],
            "users": [{"name": name, "user": credentials}],
            "contexts": [{"name": name, "context": {"cluster": name, "user": name}}],
            "current-context": name,
        }
    )


def write(instance: Instance) -> None:
    """Create all files in the instance's `pki` folder, readable only by its owner."""
    folder = instance.pki
    folder.mkdir(mode=0o700)
    key(folder, "ca")
    self_signed = ["req", "-x509", "-new", "-key", "ca.key", "-subj", "/CN=testbed", "-days", DAYS, "-out", "ca.crt"]
    openssl(*self_signed, folder=folder)
    node = ("IP:127.0.0.1", f"IP:{instance.node_ip}")
    certificate(folder, "apiserver", "/CN=kube-apiserver", *node, f"IP:{SERVICE_IP}", *API_NAMES)
    certificate(folder, "kubelet", f"/CN={NODE}", *node, f"DNS:{NODE}")
    certificate(folder, "etcd", "/CN=etcd", "IP:127.0.0.1", "DNS:localhost")
    certificate(folder, "apiserver-to-kubelet", "/O=testbed/CN=apiserver-to-kubelet")
    openssl("genrsa", "-out", "sa.key", "2048", folder=folder)
    openssl("rsa", "-in", "sa.key", "-pubout", "-out", "sa.pub", folder=folder)
    for user, subject in CLIENTS.items():
        certificate(folder, user, subject)
        (folder / f"{user}.kubeconfig").write_text(kubeconfig(instance, user))
