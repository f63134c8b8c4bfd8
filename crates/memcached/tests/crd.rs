//! The CustomResourceDefinition as it is shipped. A change of it is a change of the interface, and shows here.

use ballast_memcached::Memcached;
use ballast_staging::yaml;
use kube_core::CustomResourceExt as _;

#[test]
fn the_definition_is_as_agreed() {
    insta::assert_snapshot!(yaml(&Memcached::crd()));
}
