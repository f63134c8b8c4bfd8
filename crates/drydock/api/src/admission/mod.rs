//! What the server itself sets and refuses beyond an object's own rules: whatever needs a look at
//! other objects.
//!
//! **Always holds:** what was reserved for a write that then failed is free again.

mod addresses;
mod namespace;
mod pod;
mod rbac;
mod secret;
mod service;
mod storage;

use drydock_kinds::Kind;
use serde_json::Value;

use crate::{
    Api,
    call::Call,
    failure::Failure,
    object::{self, meta},
};

pub(crate) use addresses::Addresses;
pub(crate) use namespace::check_deletion;
pub(crate) use secret::TOKEN_TYPE;

/// The admission of one write.
pub(crate) struct Admission<'c, 'a> {
    call: &'c Call<'a>,
    old: Option<&'c Value>,
}

/// What is reserved for a write. Free again when this is dropped, unless the write took effect.
pub(crate) struct Held {
    api: Api,
    reserved: addresses::Reserved,
    /// What the write gives up.
    freed: addresses::Reserved,
}

impl Held {
    /// The write took effect: what was reserved for it stays so, and what it gave up is free.
    pub fn settled(mut self) {
        self.reserved = std::mem::take(&mut self.freed);
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        self.api.addresses().release_all(&self.reserved);
    }
}

impl<'c, 'a> Admission<'c, 'a> {
    /// Admission of an object that is to be created, or to replace `old`.
    pub fn new(call: &'c Call<'a>, old: Option<&'c Value>) -> Self {
        Self { call, old }
    }

    /// Sets what the client left to the server.
    pub async fn mutate(&self, object: &mut Value) -> Result<(), Failure> {
        if self.old.is_none() {
            self.check_definition(meta(object, "name"))?;
            namespace::check_creation(self.call, told_name(object))?;
            if is(&self.call.kind, "", "pods") {
                pod::admit(self.call, object).await?;
            }
            storage::protect(&self.call.kind, object);
            if is(&self.call.kind, "", "persistentvolumeclaims") {
                storage::default_class(self.call, object);
            }
        }
        Ok(())
    }

    /// Sets what only the server knows of an object that is in order and has its name: addresses and ports, which are
    /// reserved, and tokens.
    pub fn allocate(&self, object: &mut Value) -> Result<Option<Held>, Failure> {
        if is(&self.call.kind, "", "persistentvolumes") {
            storage::time_phase(self.old, object, self.call.now);
        }
        if is(&self.call.kind, "", "secrets") {
            secret::fill(self.call, object)?;
        }
        if !is(&self.call.kind, "", "services") {
            return Ok(None);
        }
        let (reserved, freed) = (addresses::Reserved::default(), addresses::Reserved::default());
        let mut held = Held { api: self.call.api.clone(), reserved, freed };
        service::allocate(self.call, self.old, object, &mut held.reserved)?;
        if let Some(old) = self.old {
            held.freed = addresses::Reserved::difference(old, object);
        }
        Ok(Some(held))
    }

    /// Refuses a new object of a definition that is going.
    fn check_definition(&self, name: &str) -> Result<(), Failure> {
        let kind = &self.call.kind;
        if kind.is_custom() && self.call.api.is_ending(kind) {
            let why = "create not allowed while custom resource definition is terminating";
            return Err(Failure::forbidden(object::resource_of(kind), name, why));
        }
        Ok(())
    }

    /// Refuses what this caller may not write.
    pub fn validate(&self, object: &Value) -> Result<(), Failure> {
        if &*self.call.kind.group == drydock_access::RBAC_GROUP {
            rbac::check_escalation(self.call, object, self.old)?;
        }
        if let Some(old) = self.old.filter(|_| is(&self.call.kind, "", "persistentvolumeclaims")) {
            storage::check_growth(self.call, old, object)?;
        }
        Ok(())
    }
}

/// The kind is this built-in one.
pub(crate) fn is(kind: &Kind, group: &str, plural: &str) -> bool {
    &*kind.group == group && &*kind.plural == plural
}

/// How a refused object is called: by its name, or by how that begins where it is yet to be made.
fn told_name(object: &Value) -> &str {
    let names = [meta(object, "name"), meta(object, "generateName")];
    names.into_iter().find(|name| !name.is_empty()).unwrap_or("Unknown")
}

/// The update takes away the last thing that kept a deleted object: it is to be removed.
pub(crate) fn finished(kind: &Kind, live: &Value, new: &Value) -> bool {
    object::is_terminating(live)
        && object::finalizers(new).is_empty()
        && live["metadata"]["deletionGracePeriodSeconds"].as_i64().unwrap_or(0) == 0
        && !(is(kind, "", "namespaces")
            && new["spec"]["finalizers"].as_array().is_some_and(|list| !list.is_empty()))
}
