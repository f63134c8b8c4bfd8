//! From the same types: CRDs, RBAC, manifests.
