//! What kube-controller-manager does, as ordinary clients.
