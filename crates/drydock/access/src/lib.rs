//! Who is asking, and may they: tokens, RBAC, the default roles.
