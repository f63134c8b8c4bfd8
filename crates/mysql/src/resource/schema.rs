//! Schemas of single fields, from the rules and messages of `validate`.

use ballast_operator::{
    image::{self as images, MAX_REPOSITORY},
    resources::{AMOUNT, MAX_AMOUNT, NOT_AN_AMOUNT, Resources},
};
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde_json::{Value, json};

use crate::{
    schedule::{MAX_SCHEDULE, NOT_A_SCHEDULE, PATTERN, UPWARDS},
    validate::{
        AGE, BACKUP_SIZE_TOO_SMALL, DATABASE_NAME, DATABASE_QUOTES, DATABASE_RESERVED, DATABASE_USER, FILE,
        IMAGE_NOT_A_REPOSITORY, MAX_BACKUP_NAME, MAX_DATABASE, MAX_NAME, MAX_USER, NAMES_CONTROL,
        NAMES_PLANE, NOT_A_FILE, NOT_AN_AGE, RESERVED_DATABASES, RESERVED_USERS, SHRINKS, SIZE_TOO_SMALL,
        SMALLEST_BACKUP, SMALLEST_DATA, USER_LOCKED_OUT, USER_RESERVED, VERSION, VERSION_MESSAGE,
    },
};

/// A rule and what is said where it does not hold.
fn rule(rule: impl Into<String>, message: &str) -> Value {
    json!({"rule": rule.into(), "message": message})
}

pub(super) fn name_rule() -> String {
    label_rule(MAX_NAME)
}

pub(super) fn backup_name_rule() -> String {
    label_rule(MAX_BACKUP_NAME)
}

fn label_rule(longest: usize) -> String {
    format!(
        "size(self.metadata.name) <= {longest} && self.metadata.name.matches('^[a-z0-9]([-a-z0-9]*[a-z0-9])?$')"
    )
}

/// That an optional field stays as it was, or absent.
pub(super) fn fixed(field: &str) -> String {
    format!(
        "has(self.{field}) == has(oldSelf.{field}) && (!has(self.{field}) || self.{field} == oldSelf.{field})"
    )
}

/// One of a few words, or none. What is said of the words themselves would take the place of what is said of the
/// field, which is what people ask for.
pub(super) fn optional<T: JsonSchema>(generator: &mut SchemaGenerator) -> Schema {
    let mut schema = T::json_schema(generator);
    schema.remove("description");
    schema.insert("nullable".to_owned(), true.into());
    schema
}

pub(super) fn database_name(_: &mut SchemaGenerator) -> Schema {
    let reserved = format!("!(self.lowerAscii() in {RESERVED_DATABASES:?})").replace('"', "'");
    let quotes = r#"!self.contains("'") && !self.contains('"') && !self.contains('\\')"#;
    let more = [rule(quotes, DATABASE_QUOTES), rule(reserved, DATABASE_RESERVED)];
    identifier(MAX_DATABASE, DATABASE_NAME, &more)
}

pub(super) fn database_user(_: &mut SchemaGenerator) -> Schema {
    let reserved = format!("!(self in {RESERVED_USERS:?})").replace('"', "'");
    let let_in =
        r#"!self.startsWith(' ') && !(size(self) > 1 && self.startsWith("'") && self.endsWith("'"))"#;
    let more = [rule(reserved, USER_RESERVED), rule(let_in, USER_LOCKED_OUT)];
    identifier(MAX_USER, DATABASE_USER, &more)
}

fn identifier(longest: usize, message: &str, more: &[Value]) -> Schema {
    let letters = format!(
        "size(self) > 0 && !self.endsWith(' ') && !self.matches('{NAMES_CONTROL}') && !self.matches('{NAMES_PLANE}')"
    );
    let rules: Vec<Value> = [rule(letters, message)].into_iter().chain(more.iter().cloned()).collect();
    json_schema!({"type": "string", "maxLength": longest, "x-kubernetes-validations": rules})
}

pub(super) fn storage_size(_: &mut SchemaGenerator) -> Schema {
    let mut schema = size(SMALLEST_DATA, SIZE_TOO_SMALL);
    schema.insert("default".to_owned(), super::mysql::usual_size().into());
    schema
}

pub(super) fn backup_size(_: &mut SchemaGenerator) -> Schema {
    size(SMALLEST_BACKUP, BACKUP_SIZE_TOO_SMALL)
}

/// What is no amount must not reach `quantity`: an exponent of a few digits keeps the API server busy for hours.
fn size(smallest: &str, too_small: &str) -> Schema {
    let amount = format!("self.matches('{AMOUNT}')");
    json_schema!({
        "type": "string",
        "maxLength": MAX_AMOUNT,
        "x-kubernetes-validations": [
            rule(amount.clone(), NOT_AN_AMOUNT),
            rule(format!("!{amount} || quantity(self).compareTo(quantity('{smallest}')) >= 0"), too_small),
            rule(
                format!(
                    "!{amount} || !oldSelf.matches('{AMOUNT}') || quantity(self).compareTo(quantity(oldSelf)) >= 0"
                ),
                SHRINKS,
            ),
        ],
    })
}

pub(super) fn schedule(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "string",
        "maxLength": MAX_SCHEDULE,
        "x-kubernetes-validations": [
            rule(format!("self.matches('{}')", *PATTERN), NOT_A_SCHEDULE),
            rule(UPWARDS, "a range in backupSchedule must go upwards"),
        ],
    })
}

pub(super) fn version(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "string",
        "default": "8.0",
        "maxLength": 64,
        "x-kubernetes-validations": [rule(format!("self.matches('{VERSION}')"), VERSION_MESSAGE)],
    })
}

pub(super) fn image(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "string",
        "maxLength": MAX_REPOSITORY,
        "x-kubernetes-validations": [
            rule(format!("self.matches('^{}$')", images::repository()), IMAGE_NOT_A_REPOSITORY)
        ],
    })
}

pub(super) fn resources(_: &mut SchemaGenerator) -> Schema {
    // A JSON object, so it is a schema.
    Schema::try_from(Resources::schema()).unwrap_or_default()
}

/// The name of an object of some kind: a DNS subdomain.
pub(super) fn object_name(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "string", "minLength": 1, "maxLength": 253,
        "pattern": "^[a-z0-9]([-a-z0-9]*[a-z0-9])?([.][a-z0-9]([-a-z0-9]*[a-z0-9])?)*$",
    })
}

pub(super) fn instance(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "string", "minLength": 1, "maxLength": MAX_NAME, "pattern": "^[a-z0-9]([-a-z0-9]*[a-z0-9])?$",
    })
}

pub(super) fn config_key(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "string", "minLength": 1, "maxLength": 253, "default": "init.sql",
        "pattern": "^[-._a-zA-Z0-9]*[-_a-zA-Z0-9][-._a-zA-Z0-9]*$",
    })
}

pub(super) fn file(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "string",
        "maxLength": 512,
        "x-kubernetes-validations": [rule(format!("self.matches('{FILE}')"), NOT_A_FILE)],
    })
}

pub(super) fn sha256(_: &mut SchemaGenerator) -> Schema {
    json_schema!({"type": "string", "maxLength": 64, "pattern": "^[0-9a-f]{64}$"})
}

pub(super) fn age(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "string",
        "maxLength": 8,
        "x-kubernetes-validations": [rule(format!("self.matches('{AGE}')"), NOT_AN_AGE)],
    })
}
