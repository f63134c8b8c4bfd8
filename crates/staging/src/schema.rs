//! A definition's schema, held against what the operator's own code makes of a spec.
//!
//! The schema is read by drydock's validation, which answers as a real server does: what is refused here is refused
//! there, in the same words.

use std::fmt::Debug;
use std::sync::Arc;

use drydock_schema::{Schema, validate};
use kube_core::{CustomResourceExt, Resource};
use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};
use serde::Serialize;
use serde_json::{Value, json};

/// So many resources are tried: enough that each field is wrong alone some hundred times.
const CASES: u32 = 4000;

/// The schema of a resource's definition.
pub struct Definition {
    api_version: String,
    kind: String,
    schema: Arc<Schema>,
}

impl Definition {
    /// The one that is shipped for `R`. It has one version.
    pub fn of<R: CustomResourceExt + Resource<DynamicType = ()>>() -> Self {
        let definition = serde_json::to_value(R::crd()).unwrap_or_default();
        let schema = &definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"];
        let schema = Schema::from_openapi(schema).unwrap_or_else(|error| panic!("no schema: {error:?}"));
        let (api_version, kind) = (R::api_version(&()).into_owned(), R::kind(&()).into_owned());
        Definition { api_version, kind, schema }
    }

    /// What a server would say of an object, one line per error.
    pub fn refusals(&self, object: &Value) -> String {
        validate::object(&self.schema, object, None).iter().map(|error| format!("{error}\n")).collect()
    }

    /// Asserts that a server refuses a change of a spec in these words, or takes it where there are none.
    #[track_caller]
    pub fn check_change(&self, from: &Value, to: &Value, expected: &str) {
        let object = |spec: &Value| {
            json!({
                "apiVersion": self.api_version, "kind": self.kind,
                "metadata": {"name": "sample", "namespace": "default"}, "spec": spec,
            })
        };
        let errors = validate::object(&self.schema, &object(to), Some(&object(from)));
        let refusals: String = errors.iter().map(|error| format!("{error}\n")).collect();
        let fits = if expected.is_empty() { refusals.is_empty() } else { refusals.contains(expected) };
        assert!(fits, "{from} to {to}\n--- actual ---\n{refusals}--- expected ---\n{expected}");
    }

    /// Asserts that a server refuses an object in these words, or takes it where there are none. `fields` are those
    /// beside `metadata`.
    #[track_caller]
    pub fn check(&self, name: &str, fields: &Value, expected: &str) {
        let mut object = json!({
            "apiVersion": self.api_version, "kind": self.kind,
            "metadata": {"name": name, "namespace": "default"},
        });
        for (field, value) in fields.as_object().into_iter().flatten() {
            object[field] = value.clone();
        }
        let refusals = self.refusals(&object);
        let fits = if expected.is_empty() { refusals.is_empty() } else { refusals.contains(expected) };
        assert!(fits, "{object}\n--- actual ---\n{refusals}--- expected ---\n{expected}");
    }
}

/// Mostly right, so that a single field that is wrong decides.
pub fn mostly<T: Clone + Debug + 'static>(
    right: T,
    odd: impl Strategy<Value = T> + 'static,
) -> BoxedStrategy<T> {
    prop_oneof![4 => Just(right), 1 => odd].boxed()
}

/// Asserts that the schema takes exactly those of many made-up resources that the operator's own code takes.
pub fn same_answer<R, T, E>(resources: impl Strategy<Value = R>, by_code: impl Fn(&R) -> Result<T, E>)
where
    R: CustomResourceExt + Resource<DynamicType = ()> + Serialize + Debug,
    T: Debug,
    E: Debug,
{
    let definition = Definition::of::<R>();
    let config = Config { cases: CASES, failure_persistence: None, ..Config::default() };
    let tried = TestRunner::new(config).run(&resources, |resource| {
        let object = serde_json::to_value(&resource).unwrap_or_default();
        let (refusals, by_code) = (definition.refusals(&object), by_code(&resource));
        prop_assert_eq!(
            refusals.is_empty(),
            by_code.is_ok(),
            "{}\nschema: {}\ncode: {:?}",
            object,
            refusals,
            by_code
        );
        Ok(())
    });
    if let Err(error) = tried {
        panic!("{error}");
    }
}
