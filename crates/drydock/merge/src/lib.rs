//! How two versions of an object become one: the four patches and field management.
