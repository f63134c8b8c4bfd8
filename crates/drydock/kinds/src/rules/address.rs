//! IP addresses in specifications.

use std::net::{IpAddr, Ipv4Addr};

use drydock_schema::FieldError;

use crate::path::Path;

/// Reads an address as forgivingly as Kubernetes does, or says that it is none.
pub(crate) fn parse(text: &str, path: &Path<'_>, errors: &mut Vec<FieldError>) -> Option<IpAddr> {
    let address = forgiving(text);
    if address.is_none() {
        let detail = "must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)";
        errors.push(FieldError::invalid(path, text, detail));
    }
    address
}

/// Zeros before a number of an IPv4 address mean nothing, and an IPv4 address in IPv6's clothes is one.
fn forgiving(text: &str) -> Option<IpAddr> {
    if let Ok(address) = text.parse::<IpAddr>() {
        return Some(address.to_canonical());
    }
    let mut octets = [0_u8; 4];
    let mut parts = text.split('.');
    for octet in &mut octets {
        let part = parts.next().filter(|part| !part.is_empty())?;
        let number = part.trim_start_matches('0');
        *octet = if number.is_empty() { 0 } else { number.parse().ok()? };
        part.bytes().all(|byte| byte.is_ascii_digit()).then_some(())?;
    }
    parts.next().is_none().then(|| Ipv4Addr::from(octets).into())
}

/// Says why nothing can be served from an address.
pub(crate) fn serving(text: &str, path: &Path<'_>, errors: &mut Vec<FieldError>) {
    let Some(address) = forgiving(text) else {
        errors.push(FieldError::invalid(path, text, "must be a valid IP address"));
        return;
    };
    let (link_local, multicast) = match address {
        IpAddr::V4(v4) => (v4.is_link_local(), v4.octets()[..3] == [224, 0, 0]),
        IpAddr::V6(v6) => (v6.is_unicast_link_local(), v6.segments()[0] & 0xff0f == 0xff02),
    };
    let detail = if address.is_unspecified() {
        format!("may not be unspecified ({text})")
    } else if address.is_loopback() {
        "may not be in the loopback range (127.0.0.0/8, ::1/128)".to_owned()
    } else if link_local {
        "may not be in the link-local range (169.254.0.0/16, fe80::/10)".to_owned()
    } else if multicast {
        "may not be in the link-local multicast range (224.0.0.0/24, ff02::/10)".to_owned()
    } else {
        return;
    };
    errors.push(FieldError::invalid(path, text, detail));
}
