//! One request for a resource, on its way through the verbs.

use std::sync::Arc;

use bytes::Bytes;
use drydock_access::{Attributes, Identity};
use drydock_kinds::Kind;
use drydock_merge::fields::FieldSet;
use drydock_schema::{Schema, typed, unknown};
use drydock_store::{Key, Stored};
use http::{HeaderMap, StatusCode, header};
use http_body_util::combinators::UnsyncBoxBody;
use hyper::upgrade::OnUpgrade;
use jiff::Timestamp;
use serde_json::Value;

use crate::{
    Api,
    accept::Accept,
    body::{self, BoxError, Excess, FieldValidation},
    failure::Failure,
    object,
    present::View,
    request::{Options, RequestInfo, ResourcePath},
    response::{self, Answer},
    warnings::Warnings,
};

/// A body on its way to somebody else.
pub(crate) type Passed = UnsyncBoxBody<Bytes, BoxError>;

/// Everything that a verb needs to know about its request.
pub(crate) struct Call<'a> {
    pub api: &'a Api,
    pub info: &'a RequestInfo,
    pub path: &'a ResourcePath,
    pub kind: Arc<Kind>,
    pub identity: &'a Identity,
    pub headers: &'a HeaderMap,
    /// The connection itself, once both sides agree to speak something else on it.
    pub upgrade: Option<OnUpgrade>,
    pub body: Bytes,
    /// What is for somebody else to read, as it comes in; it is taken once.
    pub passed: parking_lot::Mutex<Option<Passed>>,
    pub accept: Accept,
    pub now: Timestamp,
    /// Sentences for the client, sent as headers whatever the answer.
    pub warnings: parking_lot::Mutex<Warnings>,
}

/// What became of a write.
pub(crate) enum Outcome {
    /// The object as it is stored now, or, when it was removed, as it was last.
    Stored(Arc<Stored>),
    /// The object as it would have been stored, or as it is shown though it is stored otherwise.
    Shown(Value),
}

impl Outcome {
    /// The object in the version of `kind`.
    pub fn object(&self, kind: &Kind) -> Result<Value, Failure> {
        match self {
            Self::Stored(stored) => object::read(kind, stored),
            Self::Shown(object) => Ok(object.clone()),
        }
    }
}

impl<'a> Call<'a> {
    /// The options of the request.
    pub fn options(&self) -> &'a Options {
        &self.info.options
    }

    /// The namespace that the object lives in; empty when it is cluster scoped.
    pub fn namespace(&self) -> &'a str {
        if self.kind.namespaced { self.path.object_namespace().unwrap_or_default() } else { "" }
    }

    /// The name in the path.
    pub fn name(&self) -> &'a str {
        self.path.name.as_deref().unwrap_or_default()
    }

    /// The subresource in the path.
    pub fn subresource(&self) -> Option<&'a str> {
        self.path.subresource.as_deref()
    }

    /// The key of the object in the path.
    pub fn key(&self) -> Key {
        object::key(&self.kind, Some(self.namespace()), self.name())
    }

    /// The object in the path.
    pub fn stored(&self) -> Result<Arc<Stored>, Failure> {
        self.api.store().get(&self.key()).ok_or_else(|| self.not_found())
    }

    /// The object in the path is not there.
    pub fn not_found(&self) -> Failure {
        Failure::NotFound(object::resource_of(&self.kind), self.name().to_owned())
    }

    /// Nothing is to be stored.
    pub fn dry_run(&self) -> bool {
        !self.options().dry_run.is_empty()
    }

    /// Checks the options that all writes share; `kind` names them in errors.
    pub fn check_write_options(&self, kind: &str) -> Result<FieldValidation, Failure> {
        let given = &self.options().dry_run;
        if given.iter().any(|value| value != "All") {
            return Err(body::unsupported_option(
                kind,
                "dryRun",
                given.clone().into(),
                r#"supported values: "All""#,
            ));
        }
        if let Some(manager) = &self.options().field_manager {
            let too_long = manager.chars().count() > 128;
            let unprintable = manager.chars().any(char::is_control);
            if too_long || unprintable {
                let detail = if too_long {
                    "may not be more than 128 bytes"
                } else {
                    "should only contain printable characters"
                };
                let error = drydock_schema::FieldError::invalid("fieldManager", manager.as_str(), detail);
                return Err(body::invalid_option(kind, error));
            }
        }
        FieldValidation::parse(self.options().field_validation.as_deref(), kind)
    }

    /// Who manages the fields that this request writes: named by the request, else the client.
    pub fn manager(&self) -> String {
        if let Some(manager) = &self.options().field_manager {
            return manager.clone();
        }
        let agent = self.user_agent();
        let first = agent.split('/').next().unwrap_or_default();
        let printable: String = first.chars().filter(|c| !c.is_control()).take(128).collect();
        if printable.is_empty() { "unknown".to_owned() } else { printable }
    }

    /// The question whether the caller may do something else to the object in the path.
    pub fn attributes(&self, verb: &'a str) -> Attributes<'a> {
        Attributes {
            identity: self.identity,
            verb,
            group: &self.path.group,
            version: &self.path.version,
            resource: &self.path.resource,
            subresource: "",
            namespace: self.path.namespace.as_deref().unwrap_or_default(),
            name: self.name(),
            path: None,
        }
    }

    /// The program that asks.
    pub fn user_agent(&self) -> &'a str {
        user_agent(self.headers)
    }

    /// Tells the client something beside the answer, once: a write may have to be made again.
    pub fn warn(&self, warnings: impl IntoIterator<Item = String>) {
        let mut told = self.warnings.lock();
        warnings.into_iter().for_each(|warning| told.add(warning));
    }

    /// Reads the body as an object of this kind: known fields only, defaults set.
    pub fn decode(&self, options_kind: &str) -> Result<Value, Failure> {
        let validation = self.check_write_options(options_kind)?;
        let media = body::media_type(self.headers)?;
        let decoded = body::decode(&self.kind, media, &self.body)?;
        let mut object = decoded.object;
        let text = (media == body::MediaType::Json && !self.kind.is_custom()).then_some(&*self.body);
        self.settle(&mut object, decoded.duplicates, validation, text)
            .map_err(|fault| body::mishandled(&self.kind.kind, &self.kind.version, &fault.to_string()))?;
        Ok(object)
    }

    /// Drops what the schema does not know, as field validation says, and sets defaults. `text` is what was
    /// read, where the order of its fields counts.
    pub fn settle(
        &self,
        object: &mut Value,
        duplicates: Vec<String>,
        validation: FieldValidation,
        text: Option<&[u8]>,
    ) -> Result<(), Unfit> {
        let schema = self.kind.schema();
        if self.kind.is_custom() {
            typed::metadata(&object["metadata"])?;
        } else {
            typed::check(&schema, object)?;
        }
        let unknown = unknown::prune(&schema, object, unknown::Root::Resource);
        let excess = Excess { unknown, duplicates };
        let text = text.map(|text| (&*schema, text));
        self.warn(body::judge(validation, excess, text).map_err(Unfit::Excess)?);
        self.kind.default(object);
        Ok(())
    }

    /// Since when custom objects of this kind are what the present definition makes of them.
    pub fn fresh(&self) -> Option<drydock_store::Revision> {
        if self.kind.is_custom() { self.api.installed().since(&self.kind.resource_key()) } else { None }
    }

    /// How this request wants objects shown.
    pub fn view(&self) -> Result<View<'_>, Failure> {
        View::new(&self.kind, &self.accept, self.options(), self.now, self.fresh())
    }

    /// The answer that shows what became of a write.
    pub fn show(&self, code: StatusCode, outcome: &Outcome) -> Result<Answer, Failure> {
        let view = self.view()?;
        match outcome {
            Outcome::Stored(stored) => view.stored(code, stored),
            Outcome::Shown(object) => Ok(view.value(code, object)),
        }
    }

    /// The answer that is a plain value, e.g. a `Status`.
    pub fn plain(&self, code: StatusCode, value: &Value) -> Answer {
        response::value(code, value, &self.accept)
    }
}

/// Why an object is none of its kind. `Display` is what the real server's decoder says.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Unfit {
    /// A field has another type.
    #[error(transparent)]
    Type(#[from] typed::Mismatch),
    /// There is more than the schema knows.
    #[error("{0}")]
    Excess(String),
}

/// The program that asks.
pub(crate) fn user_agent(headers: &HeaderMap) -> &str {
    headers.get(header::USER_AGENT).and_then(|value| value.to_str().ok()).unwrap_or_default()
}

/// The fields that a write by this path does not touch, so that its manager never owns them.
pub(crate) fn untouched(kind: &Kind, schema: &Schema, subresource: Option<&str>) -> FieldSet {
    match subresource {
        None if kind.subresources.status => FieldSet::of_names(&[&["status"]]),
        Some("status") if &*kind.kind == "Deployment" && &*kind.group == "apps" => {
            FieldSet::of_names(&[&["spec"], &["metadata", "labels"]])
        }
        Some("status") => {
            let kept = |name: &str| match name {
                "status" | "apiVersion" | "kind" => true,
                "metadata" => !kind.is_custom(),
                _ => false,
            };
            let mut names: Vec<&str> =
                schema.properties.keys().map(String::as_str).filter(|name| !kept(name)).collect();
            if kind.is_custom() && !names.contains(&"metadata") {
                names.push("metadata");
            }
            let paths: Vec<[&str; 1]> = names.into_iter().map(|name| [name]).collect();
            FieldSet::of_names(&paths.iter().map(<[&str; 1]>::as_slice).collect::<Vec<_>>())
        }
        _ => FieldSet::new(),
    }
}
