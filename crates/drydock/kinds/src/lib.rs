//! The table of kinds: what makes each of them special, and the documents that describe them.
