//! The Service under which clients find the nodes.

use ballast_operator::View;
use k8s_openapi::{
    api::core::v1::{Service, ServicePort, ServiceSpec},
    apimachinery::pkg::util::intstr::IntOrString,
};

use super::{PORT, PORT_NAME, metadata, selector};
use crate::{Cache, Memcached};

/// Headless: its name resolves to the address of every node that is ready. A client of memcached spreads keys over
/// a list of servers; behind one virtual address the same key would be stored here and looked for there.
pub(crate) fn service(view: &View<Memcached>, cache: &Cache) -> Service {
    Service {
        metadata: metadata(view, cache),
        spec: Some(ServiceSpec {
            cluster_ip: Some("None".to_owned()),
            selector: Some(selector(cache)),
            ports: Some(vec![ServicePort {
                name: Some(PORT_NAME.to_owned()),
                port: PORT,
                target_port: Some(IntOrString::String(PORT_NAME.to_owned())),
                protocol: Some("TCP".to_owned()),
                ..ServicePort::default()
            }]),
            ..ServiceSpec::default()
        }),
        status: None,
    }
}
