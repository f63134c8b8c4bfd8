//! `PATCH`: the four ways to change a part of an object.
//!
//! **Always holds:** a patch that names no `resourceVersion` is made again on the newer object when
//! somebody else was faster.

use drydock_merge::{
    managed::{self, ApplyError},
    patch::{self, PatchError},
};
use drydock_schema::{FieldError, json};
use http::StatusCode;
use serde_json::Value;

use crate::{
    body::{self, FieldValidation},
    call::{Call, Outcome, Unfit, untouched},
    failure::{Cause, Failure, GroupResource},
    object::{self, meta},
    response::Answer,
};

/// How often an apply is tried when objects appear and vanish under it.
const ATTEMPTS: usize = 16;

/// The media type of server-side apply.
const APPLY: &str = "application/apply-patch+yaml";

/// A patch, read.
pub(crate) enum Patch {
    /// RFC 6902.
    Json(Value),
    /// RFC 7386.
    Merge(Value),
    /// Kubernetes' own, for built-in kinds.
    Strategic(Value),
    /// Server-side apply.
    Apply(Value),
}

impl Patch {
    /// Reads the body of a `PATCH` and the paths of what is in it twice; the options are looked at first.
    pub fn read(call: &Call<'_>) -> Result<(Self, Vec<String>), Failure> {
        let strategic = !call.kind.is_custom();
        let kind = body::content_type(call.headers);
        check_options(call, kind == APPLY)?;
        let read = |said: &str| -> Result<(Value, Vec<String>), Failure> {
            let parsed =
                json::parse(&call.body).map_err(|error| Failure::BadRequest(format!("{said}{error}")))?;
            Ok((parsed.value, parsed.duplicates))
        };
        let decoding = "error decoding patch: ";
        match kind {
            "application/json-patch+json" => read(decoding).map(|(value, _)| (Self::Json(value), Vec::new())),
            "application/merge-patch+json" => {
                read(decoding).map(|(value, twice)| (Self::Merge(value), twice))
            }
            "application/strategic-merge-patch+json" if strategic => {
                read("").map(|(value, twice)| (Self::Strategic(value), twice))
            }
            APPLY => {
                let parsed = json::parse_yaml(&call.body).map_err(|error| {
                    Failure::BadRequest(format!(
                        "error decoding YAML: error converting YAML to JSON: {error}"
                    ))
                })?;
                Ok((Self::Apply(parsed.value), parsed.duplicates))
            }
            _ if strategic => Err(Failure::UnsupportedPatch),
            _ => Err(Failure::UnsupportedMediaType(
                "application/json-patch+json, application/merge-patch+json, application/apply-patch+yaml",
            )),
        }
    }

    /// The object with the patch carried out, for all but apply.
    fn onto(&self, call: &Call<'_>, live: &Value) -> Result<Value, Failure> {
        let patched = match self {
            Self::Json(operations) => patch::json(live, operations)?,
            Self::Merge(change) | Self::Apply(change) => {
                patch::require_object(change)?;
                patch::merge(live, change)
            }
            Self::Strategic(change) => patch::strategic(&call.kind.schema(), live, change)?,
        };
        bearable(patched)
    }
}

/// What came of a patch, unless it nests too deep: a deep patch of a deep place is deeper than either.
pub(crate) fn bearable(patched: Value) -> Result<Value, Failure> {
    if json::is_bearable(&patched) {
        Ok(patched)
    } else {
        Err(Failure::BadRequest(json::JsonError::Depth.to_string()))
    }
}

impl Call<'_> {
    /// `PATCH` of an object, or of its status.
    pub async fn patch(&self, subresource: Option<&str>) -> Result<Answer, Failure> {
        let (patch, duplicates) = Patch::read(self)?;
        let validation = self.check_write_options("PatchOptions")?;
        if let Patch::Apply(applied) = &patch {
            self.judge_applied(duplicates, validation)?;
            return self.apply(applied, subresource).await;
        }
        let outcome = self
            .update(subresource, |live| {
                let patched = self.patched(&patch, live, duplicates.clone(), validation)?;
                Ok(self.manage(Some(live), patched, subresource))
            })
            .await?;
        self.show(StatusCode::OK, &outcome)
    }

    fn patched(
        &self,
        patch: &Patch,
        live: &Value,
        duplicates: Vec<String>,
        validation: FieldValidation,
    ) -> Result<Value, Failure> {
        let mut patched = patch.onto(self, live)?;
        let shown = match patch {
            Patch::Strategic(change) => {
                // A strategic patch is made to the typed object, which has no other type.
                patched["apiVersion"] = live["apiVersion"].clone();
                patched["kind"] = live["kind"].clone();
                go_map(change)
            }
            _ => patched.to_string(),
        };
        let refuse = |fault: &str| unpatchable(&shown, fault);
        self.check_patched_type(&patched, &refuse)?;
        self.settle(&mut patched, duplicates, validation, None).map_err(|fault| match (patch, &fault) {
            (Patch::Strategic(_), Unfit::Type(mismatch)) => refuse(mismatch.in_conversion()),
            _ => refuse(&fault.to_string()),
        })?;
        self.check_identity(&patched)?;
        Ok(patched)
    }

    /// A patch can't make an object of another kind.
    fn check_patched_type(&self, patched: &Value, refuse: &dyn Fn(&str) -> Failure) -> Result<(), Failure> {
        let text = |field: &str| patched[field].as_str().unwrap_or_default();
        let (version, name, expected) = (text("apiVersion"), text("kind"), self.kind.api_version());
        if version == expected && name == &*self.kind.kind {
            return Ok(());
        }
        if !self.kind.is_custom() {
            return Err(refuse(&body::other_type(&self.kind.group, &self.kind.kind, version, name)));
        }
        let error = if name == &*self.kind.kind {
            FieldError::invalid("apiVersion", version, format!("must be {expected}"))
        } else {
            FieldError::invalid("kind", name, format!("must be {}", self.kind.kind))
        };
        let group = version.rsplit_once('/').map_or("", |(group, _)| group);
        let kind = GroupResource::new(group, name);
        Err(Failure::Invalid { kind, name: self.name().to_owned(), errors: vec![error] })
    }

    /// The object in a body is the one that the path names.
    pub fn check_identity(&self, object: &Value) -> Result<(), Failure> {
        let namespace = meta(object, "namespace");
        if !namespace.is_empty() && namespace != self.namespace() {
            return Err(Failure::BadRequest(
                "the namespace of the provided object does not match the namespace sent on the request"
                    .into(),
            ));
        }
        let (name, own) = (meta(object, "name"), self.name());
        if name.is_empty() {
            return Err(Failure::BadRequest(format!(
                "the name of the object ({own} based on URL) was undeterminable: name must be provided"
            )));
        }
        if name != own {
            return Err(Failure::BadRequest(format!(
                "the name of the object ({name}) does not match the name on the URL ({own})"
            )));
        }
        Ok(())
    }

    /// Refuses what an applied object has twice, or warns of it, in the words of the reader of YAML.
    pub fn judge_applied(&self, duplicates: Vec<String>, validation: FieldValidation) -> Result<(), Failure> {
        if duplicates.is_empty() || validation == FieldValidation::Ignore {
            return Ok(());
        }
        let mut found = json::written_twice(&self.body);
        if found.is_empty() {
            // Not all JSON is YAML to its reader.
            found.extend(duplicates.iter().map(|path| format!("duplicate field {path:?}")));
        }
        if validation == FieldValidation::Strict {
            return Err(Failure::BadRequest(format!(
                "error strict decoding YAML: error converting YAML to JSON: yaml: unmarshal errors:\n  {}",
                found.join("\n  ")
            )));
        }
        self.warn(found);
        Ok(())
    }

    async fn apply(&self, applied: &Value, subresource: Option<&str>) -> Result<Answer, Failure> {
        self.check_applied(applied)?;
        for _ in 0..ATTEMPTS {
            let exists = self.api.store().get(&self.key()).is_some();
            if !exists && subresource.is_some() {
                return Err(self.not_found());
            }
            let result = if exists {
                self.update(subresource, |live| self.merged(Some(live), applied, subresource)).await
            } else {
                self.apply_new(applied).await
            };
            match result {
                Ok(outcome) => {
                    let code = if exists { StatusCode::OK } else { StatusCode::CREATED };
                    return self.show(code, &outcome);
                }
                Err(Failure::NotFound(..)) if exists => {}
                Err(Failure::AlreadyExists { .. }) if !exists => {}
                Err(failure) => return Err(failure),
            }
        }
        Err(self.conflict(crate::failure::OPTIMISTIC_LOCK))
    }

    async fn apply_new(&self, applied: &Value) -> Result<Outcome, Failure> {
        let uid = meta(applied, "uid");
        if !uid.is_empty() {
            return Err(self.conflict(format!(
                "uid mismatch: the provided object specified uid {uid}, and no existing object was found"
            )));
        }
        self.api.allow(&self.attributes("create"))?;
        let mut merged = self.merged(None, applied, None)?;
        object::meta_mut(&mut merged).remove("resourceVersion");
        self.create(merged, true).await
    }

    /// What was sent is an object of this kind and of this name.
    fn check_applied(&self, applied: &Value) -> Result<(), Failure> {
        if !applied.is_object() {
            return Err(Failure::BadRequest("error decoding YAML: the body is not an object".into()));
        }
        let name = meta(applied, "name");
        if !name.is_empty() && name != self.name() {
            return Err(Failure::BadRequest(format!(
                "the name of the object ({name}) does not match the name on the URL ({})",
                self.name()
            )));
        }
        let namespace = meta(applied, "namespace");
        if !namespace.is_empty() && namespace != self.namespace() {
            return Err(Failure::BadRequest(
                "the namespace of the provided object does not match the namespace sent on the request"
                    .into(),
            ));
        }
        Ok(())
    }

    /// The live object with the applied one merged in.
    pub fn merged(
        &self,
        live: Option<&Value>,
        applied: &Value,
        subresource: Option<&str>,
    ) -> Result<Value, Failure> {
        let schema = self.kind.schema();
        let mut merged = managed::apply(managed::Apply {
            schema: &schema,
            live,
            applied,
            manager: &self.manager(),
            api_version: &self.kind.api_version(),
            subresource,
            force: self.options().force == Some(true),
            now: self.now,
            ignore: &untouched(&self.kind, &schema, subresource),
        })?;
        self.kind.default(&mut merged);
        if meta(&merged, "name").is_empty() {
            object::meta_mut(&mut merged).insert("name".into(), self.name().into());
        }
        Ok(merged)
    }
}

/// Checks the options of a `PATCH`.
fn check_options(call: &Call<'_>, apply: bool) -> Result<(), Failure> {
    call.check_write_options("PatchOptions")?;
    let refuse = |error| Err(body::invalid_option("PatchOptions", error));
    if apply && call.options().field_manager.is_none() {
        return refuse(FieldError::required("fieldManager", "is required for apply patch"));
    }
    if !apply && call.options().force.is_some() {
        return refuse(FieldError::forbidden("force", "may not be specified for non-apply patch"));
    }
    Ok(())
}

/// The refusal of a patch whose result can't be decoded.
pub(crate) fn unpatchable(shown: &str, fault: &str) -> Failure {
    Failure::Invalid {
        kind: GroupResource::default(),
        name: String::new(),
        errors: vec![FieldError::invalid("patch", shown, fault)],
    }
}

/// A value as Go prints it.
fn go_map(value: &Value) -> String {
    match value {
        Value::Object(fields) => {
            let fields: Vec<String> =
                fields.iter().map(|(name, value)| format!("{name}:{}", go_map(value))).collect();
            format!("map[{}]", fields.join(" "))
        }
        Value::Array(items) => format!("[{}]", items.iter().map(go_map).collect::<Vec<_>>().join(" ")),
        Value::String(text) => text.clone(),
        Value::Null => "<nil>".to_owned(),
        other => other.to_string(),
    }
}

impl From<PatchError> for Failure {
    fn from(error: PatchError) -> Self {
        match error {
            PatchError::BadRequest(message) => Self::BadRequest(message),
            PatchError::Unprocessable(message) => Self::Unprocessable(message),
            PatchError::TooLarge(message) => Self::Injected { code: 413, message },
            PatchError::Internal(message) => Self::Unexpected(message),
        }
    }
}

impl From<ApplyError> for Failure {
    fn from(error: ApplyError) -> Self {
        let message = error.to_string();
        match error {
            ApplyError::Conflicts(conflicts) => Self::ApplyConflict {
                message,
                causes: conflicts
                    .iter()
                    .map(|conflict| Cause {
                        reason: "FieldManagerConflict".into(),
                        message: conflict.cause(),
                        field: conflict.path.to_string(),
                    })
                    .collect(),
            },
            ApplyError::BadRequest(message) => Self::BadRequest(message),
            ApplyError::Invalid { .. } | ApplyError::InvalidLive { .. } | ApplyError::ManagedFields(_) => {
                Self::Unexpected(message)
            }
        }
    }
}
