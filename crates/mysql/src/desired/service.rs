//! The Service under which clients find the server.

use ballast_operator::View;
use k8s_openapi::{
    api::core::v1::{Service, ServicePort, ServiceSpec},
    apimachinery::pkg::util::intstr::IntOrString,
};

use super::{owned, pod, selector, server_name};
use crate::{resource::MySQL, validate::Instance};

pub(crate) fn service(view: &View<MySQL>, instance: &Instance) -> Service {
    Service {
        metadata: owned(view, server_name(&instance.name), &instance.name, None),
        spec: Some(ServiceSpec {
            selector: Some(selector(&instance.name)),
            ports: Some(vec![ServicePort {
                name: Some(pod::PORT_NAME.to_owned()),
                port: pod::PORT,
                target_port: Some(IntOrString::String(pod::PORT_NAME.to_owned())),
                protocol: Some("TCP".to_owned()),
                ..ServicePort::default()
            }]),
            ..ServiceSpec::default()
        }),
        status: None,
    }
}
