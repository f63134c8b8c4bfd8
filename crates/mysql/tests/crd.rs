//! The CustomResourceDefinitions as they are shipped. A change of them is a change of the interface, and shows here.

use ballast_mysql::{MySQL, MySQLBackup};
use ballast_staging::yaml;
use kube_core::CustomResourceExt as _;

#[test]
fn the_definitions_are_as_agreed() {
    // The affinity of pods is Kubernetes' own, and is most of the text.
    let mut definition = serde_json::to_value(MySQL::crd()).unwrap_or_default();
    let spec = "/spec/versions/0/schema/openAPIV3Schema/properties/spec/properties/affinity/properties";
    if let Some(affinity) = definition.pointer_mut(spec) {
        *affinity = "as Kubernetes has it".into();
    }
    insta::assert_snapshot!("mysql", yaml(&definition));
    insta::assert_snapshot!("mysqlbackup", yaml(&MySQLBackup::crd()));
}
