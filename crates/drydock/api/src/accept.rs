//! Which form of answer a client accepts.
//!
//! **Always holds:** a client that accepts JSON in any way gets JSON: kubectl and client-go ask for
//! protobuf first and JSON next. Only a client that accepts neither JSON nor YAML is turned away.

use crate::failure::Failure;

/// The media types that answers come in, for the message of a refusal.
pub const OFFERED: &str = "application/json, application/yaml";

/// How an answer is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Format {
    /// `application/json`.
    Json,
    /// `application/yaml`.
    Yaml,
}

/// What an answer is turned into before it is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Shape {
    /// The object or list itself.
    Whole,
    /// A `meta.k8s.io` Table.
    Table,
    /// `PartialObjectMetadata`, or a list of it.
    Metadata,
    /// Aggregated discovery.
    Discovery,
}

/// A form of answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Accept {
    /// How it is written.
    pub format: Format,
    /// What it is turned into.
    pub shape: Shape,
    /// The version of the shape, e.g. `v1`.
    pub version: &'static str,
}

/// Plain JSON.
pub const JSON: Accept = Accept { format: Format::Json, shape: Shape::Whole, version: "v1" };

/// Chooses the first acceptable form of the header.
///
/// # Errors
/// When nothing that is listed can be written.
pub fn negotiate(header: Option<&str>) -> Result<Accept, Failure> {
    let Some(header) = header.map(str::trim).filter(|header| !header.is_empty()) else {
        return Ok(JSON);
    };
    if header == "*/*" || header == "application/json" {
        return Ok(JSON);
    }
    let mut clauses: Vec<(f32, Accept)> = header.split(',').filter_map(clause).collect();
    clauses.sort_by(|a, b| b.0.total_cmp(&a.0));
    clauses.into_iter().next().map(|(_, accept)| accept).ok_or(Failure::NotAcceptable(OFFERED))
}

/// One clause, if it can be satisfied, with its weight.
fn clause(text: &str) -> Option<(f32, Accept)> {
    let mut parts = text.split(';').map(str::trim);
    let format = match parts.next()?.to_ascii_lowercase().as_str() {
        "application/json" | "application/*" | "*/*" => Format::Json,
        "application/yaml" => Format::Yaml,
        _ => return None,
    };
    let (mut weight, mut kind, mut group, mut version, mut stream) = (1.0, None, None, None, None);
    for part in parts {
        match part.split_once('=') {
            Some(("q", value)) => weight = value.parse().unwrap_or(1.0),
            Some(("as", value)) => kind = Some(value),
            Some(("g", value)) => group = Some(value),
            Some(("v", value)) => version = Some(value),
            Some(("stream", value)) => stream = Some(value),
            _ => {}
        }
    }
    if stream.is_some_and(|stream| stream != "watch") {
        return None;
    }
    let shape = match (kind, group) {
        (None, _) => Shape::Whole,
        (Some("Table"), Some("meta.k8s.io")) => Shape::Table,
        (Some("PartialObjectMetadata" | "PartialObjectMetadataList"), Some("meta.k8s.io")) => Shape::Metadata,
        (Some("APIGroupDiscoveryList"), Some("apidiscovery.k8s.io")) => Shape::Discovery,
        _ => return None,
    };
    let version = match (shape, version) {
        (Shape::Whole, _) => "v1",
        (Shape::Discovery, Some("v2")) => "v2",
        (Shape::Table | Shape::Metadata, Some("v1")) => "v1",
        (Shape::Table | Shape::Metadata, Some("v1beta1")) => "v1beta1",
        _ => return None,
    };
    Some((weight, Accept { format, shape, version }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(header: &str, expected: &str) {
        let actual = match negotiate(Some(header)) {
            Ok(accept) => format!("{:?} {:?} {}", accept.format, accept.shape, accept.version),
            Err(failure) => failure.to_string(),
        };
        assert_eq!(actual, expected, "{header}");
    }

    #[test]
    fn the_first_acceptable_form_is_chosen() {
        check("*/*", "Json Whole v1");
        check("application/vnd.kubernetes.protobuf,application/json", "Json Whole v1");
        check("application/yaml", "Yaml Whole v1");
        check(
            "application/json;as=Table;v=v1;g=meta.k8s.io,application/json;as=Table;v=v1beta1;g=meta.k8s.io,application/json",
            "Json Table v1",
        );
        check("application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1", "Json Metadata v1");
        check(
            "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList,application/json",
            "Json Discovery v2",
        );
        check("application/json;q=0.5, application/yaml;q=0.9", "Yaml Whole v1");
    }

    #[test]
    fn a_client_that_reads_neither_json_nor_yaml_is_turned_away() {
        check(
            "application/vnd.kubernetes.protobuf",
            "406: Not Acceptable\n\nAvailable representations: application/json, application/yaml",
        );
        check("application/cbor", &negotiate(Some("text/plain")).unwrap_err().to_string());
    }
}
