//! IP addresses in specifications.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

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

/// What is worth saying about an address that is taken, and not written as it should be.
pub(crate) fn warnings(text: &str, path: &Path<'_>, warnings: &mut Vec<String>) {
    let Some(meant) = forgiving(text) else { return };
    match text.parse::<IpAddr>() {
        Ok(IpAddr::V6(address)) if address.to_ipv4_mapped().is_none() => {
            if address.to_string() != text {
                warnings.push(format!(
                    "{path}: IPv6 address {text:?} should be in RFC 5952 canonical format (\"{address}\")"
                ));
            }
        }
        Ok(IpAddr::V4(_)) => {}
        Ok(IpAddr::V6(_)) | Err(_) => warnings.push(format!(
            "{path}: non-standard IP address {text:?} will be considered invalid in a future Kubernetes release: use \
             \"{meant}\""
        )),
    }
}

/// Addresses that begin with the same bits.
struct Range {
    /// The address that was written. One of IPv4 in IPv6's clothes keeps them.
    address: IpAddr,
    length: u32,
    /// Neither the address nor the length is written in a way that others don't understand.
    is_plain: bool,
}

impl Range {
    fn parse(text: &str) -> Option<Self> {
        let (address, digits) = text.split_once('/')?;
        let plain = address.parse::<IpAddr>().ok();
        let address = plain.or_else(|| forgiving(address))?;
        let length: u32 = digits.bytes().all(|byte| byte.is_ascii_digit()).then(|| digits.parse().ok())??;
        let range = Self {
            address,
            length,
            is_plain: plain.is_some_and(|plain| plain == plain.to_canonical())
                && digits == length.to_string(),
        };
        (length <= range.bits()).then_some(range)
    }

    /// How many bits the address has.
    fn bits(&self) -> u32 {
        if self.address.is_ipv4() { 32 } else { 128 }
    }

    /// The address with every other bit of the range unset.
    fn first(&self) -> IpAddr {
        let others = self.bits() - self.length;
        match self.address {
            IpAddr::V4(v4) => {
                Ipv4Addr::from_bits(v4.to_bits() & u32::MAX.checked_shl(others).unwrap_or_default()).into()
            }
            IpAddr::V6(v6) => {
                Ipv6Addr::from_bits(v6.to_bits() & u128::MAX.checked_shl(others).unwrap_or_default()).into()
            }
        }
    }

    /// The range as it should be written.
    fn canonical(&self) -> String {
        let first = self.first().to_canonical();
        let clothes = self.bits() - if first.is_ipv4() { 32 } else { 128 };
        format!("{first}/{}", self.length.saturating_sub(clothes))
    }
}

/// What is worth saying about a range of addresses that is taken, and not written as it should be.
pub(crate) fn range_warnings(text: &str, path: &Path<'_>, warnings: &mut Vec<String>) {
    let Some(range) = Range::parse(text) else { return };
    let (canonical, before) = (range.canonical(), warnings.len());
    if range.first() != range.address {
        let (address, bits) = (range.address.to_canonical(), range.bits());
        warnings.push(format!(
            "{path}: CIDR value {text:?} is ambiguous in this context (should be \"{canonical}\" or \
             \"{address}/{bits}\"?)"
        ));
    }
    if !range.is_plain {
        warnings.push(format!(
            "{path}: non-standard CIDR value {text:?} will be considered invalid in a future Kubernetes release: use \
             \"{canonical}\""
        ));
    }
    if warnings.len() == before && range.address.is_ipv6() && canonical != text {
        warnings.push(format!(
            "{path}: IPv6 CIDR value {text:?} should be in RFC 5952 canonical format (\"{canonical}\")"
        ));
    }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(warn: fn(&str, &Path<'_>, &mut Vec<String>), text: &str, expected: &[&str]) {
        let mut warnings = Vec::new();
        warn(text, &Path::new("ip"), &mut warnings);
        assert_eq!(warnings, expected, "{text}");
    }

    #[test]
    fn an_address_is_told_how_it_should_be_written() {
        for fine in ["1.2.3.4", "fd00::1", "::", "no address"] {
            check(warnings, fine, &[]);
        }
        check(
            warnings,
            "FD00::01",
            &[r#"ip: IPv6 address "FD00::01" should be in RFC 5952 canonical format ("fd00::1")"#],
        );
        for strange in ["01.2.3.4", "::ffff:1.2.3.4"] {
            let expected = format!(
                "ip: non-standard IP address {strange:?} will be considered invalid in a future Kubernetes release: \
                 use \"1.2.3.4\""
            );
            check(warnings, strange, &[&expected]);
        }
    }

    #[test]
    fn a_range_is_told_how_it_should_be_written() {
        for fine in
            ["1.2.3.0/24", "0.0.0.0/0", "::/0", "fd00::/8", "1.2.3.4/32", "1.2.3.4", "1.2.3.4/33", "a/1"]
        {
            check(range_warnings, fine, &[]);
        }
        let ambiguous = r#"ip: CIDR value "01.2.3.4/8" is ambiguous in this context (should be "1.0.0.0/8" or "1.2.3.4/32"?)"#;
        let strange = r#"ip: non-standard CIDR value "01.2.3.4/8" will be considered invalid in a future Kubernetes release: use "1.0.0.0/8""#;
        check(range_warnings, "01.2.3.4/8", &[ambiguous, strange]);
    }
}
