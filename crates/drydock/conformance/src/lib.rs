//! The API's behaviour as a suite that runs unchanged on drydock and on a real kube-apiserver.
