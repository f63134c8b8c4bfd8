//! From a resource's request to its answer: which verb, which subresource.

use std::sync::Arc;

use drydock_access::Identity;
use drydock_kinds::Kind;
use drydock_store::Key;
use http::{HeaderMap, Method, StatusCode};
use serde_json::Value;

use crate::{
    Api, accept,
    call::Call,
    delete::DeleteOptions,
    failure::Failure,
    list, object,
    request::{RequestInfo, ResourcePath, Verb},
    response::Answer,
    subresources, watch,
};

impl Call<'_> {
    /// Carries the request out.
    pub async fn answer(&self) -> Result<Answer, Failure> {
        if let Some(warning) = self.kind.deprecation_warning() {
            self.warn([warning.to_owned()]);
        }
        if self.kind.is_virtual() {
            return subresources::review(self);
        }
        match self.subresource() {
            None => self.main().await,
            Some("status") if self.kind.subresources.status => self.status().await,
            Some("scale") if self.kind.subresources.scale.is_some() => subresources::scale(self).await,
            Some(name) if self.kind.subresources.other.iter().any(|other| other.name == name) => {
                subresources::other(self, name).await
            }
            Some(_) => Err(self.no_such_resource()),
        }
    }

    /// The path names something that is not there.
    pub fn no_such_resource(&self) -> Failure {
        if self.kind.is_custom() { self.not_found() } else { Failure::NoSuchResource }
    }

    async fn main(&self) -> Result<Answer, Failure> {
        let verb = self.info.verb;
        if !self.kind.verbs.contains(&verb.as_str()) {
            return Err(self.not_supported());
        }
        let whole_cluster = self.kind.namespaced && self.path.object_namespace().is_none();
        match verb {
            Verb::List => {
                list::list(self.api.store(), &self.view()?, self.path.object_namespace(), self.options())
            }
            Verb::Watch => watch::watch(self.watch_context()),
            Verb::Get => self.get(),
            _ if whole_cluster && !matches!(verb, Verb::DeleteCollection) => Err(Failure::MethodNotAllowed),
            Verb::Create if !self.name().is_empty() => Err(Failure::MethodNotAllowed),
            Verb::Update | Verb::Patch if self.name().is_empty() => Err(if self.kind.is_custom() {
                Failure::BadRequest("name must be provided".into())
            } else {
                Failure::MethodNotAllowed
            }),
            Verb::Create => self.post().await,
            Verb::Update => self.put_body(None).await,
            Verb::Patch => self.patch(None).await,
            Verb::Delete => self.delete().await,
            Verb::DeleteCollection if whole_cluster => Err(Failure::MethodNotAllowed),
            Verb::DeleteCollection => self.delete_collection().await,
            Verb::Other => Err(Failure::MethodNotAllowed),
        }
    }

    fn not_supported(&self) -> Failure {
        if self.info.verb == Verb::Other {
            return Failure::MethodNotAllowed;
        }
        let resource = object::resource_of(&self.kind);
        Failure::MethodNotSupported { resource, action: self.info.verb.as_str().to_owned() }
    }

    async fn status(&self) -> Result<Answer, Failure> {
        match self.info.verb {
            Verb::Get => self.get(),
            Verb::Update => self.put_body(Some("status")).await,
            Verb::Patch => self.patch(Some("status")).await,
            _ => Err(Failure::MethodNotAllowed),
        }
    }

    /// `GET` of one object.
    pub fn get(&self) -> Result<Answer, Failure> {
        list::not_in_the_future(self.api.store(), list::revision(self.options())?)?;
        self.view()?.stored(StatusCode::OK, &*self.stored()?)
    }

    async fn post(&self) -> Result<Answer, Failure> {
        let object = self.decode("CreateOptions")?;
        let outcome = self.create(object, false).await?;
        self.show(StatusCode::CREATED, &outcome)
    }

    /// `PUT` of an object or one of its subresources that have the object's own form.
    pub async fn put_body(&self, subresource: Option<&str>) -> Result<Answer, Failure> {
        let object = self.decode("UpdateOptions")?;
        self.check_identity(&object)?;
        let absent = || self.api.store().get(&self.key()).is_none();
        if subresource.is_none() && self.kind.allow_create_on_update() && absent() {
            self.api.allow(&self.attributes("create"))?;
            let outcome = self.create(object, false).await?;
            return self.show(StatusCode::CREATED, &outcome);
        }
        let outcome = self
            .update(subresource, |live| {
                self.check_uid(live, &object)?;
                Ok(self.manage(Some(live), object.clone(), subresource))
            })
            .await?;
        self.show(StatusCode::OK, &outcome)
    }

    fn watch_context(&self) -> watch::Context {
        watch::Context {
            api: self.api.clone(),
            groups: self.api.watching(),
            kind: self.kind.clone(),
            namespace: self.path.object_namespace().map(str::to_owned),
            fresh: self.fresh(),
            accept: self.accept.clone(),
            clock: self.api.clock(),
            info: self.info.clone(),
            user: self.identity.username.clone(),
            user_agent: self.user_agent().to_owned(),
            interceptor: self.api.interceptor(),
        }
    }
}

impl<'a> Call<'a> {
    /// The same request for another object.
    pub fn at<'b>(&'b self, path: &'b ResourcePath) -> Call<'b>
    where
        'a: 'b,
    {
        Call {
            api: self.api,
            info: self.info,
            path,
            kind: self.kind.clone(),
            identity: self.identity,
            headers: self.headers,
            upgrade: None,
            body: self.body.clone(),
            passed: parking_lot::Mutex::default(),
            accept: self.accept.clone(),
            now: self.now,
            warnings: parking_lot::Mutex::default(),
        }
    }
}

impl Api {
    /// Makes a call of the server's own, and hands it to `act`.
    pub(crate) async fn as_system<T>(
        &self,
        kind: &Arc<Kind>,
        namespace: &str,
        name: &str,
        act: impl AsyncFnOnce(Call<'_>) -> T,
    ) -> T {
        let path = ResourcePath {
            group: kind.group.to_string(),
            version: kind.version.to_string(),
            resource: kind.plural.to_string(),
            subresource: None,
            namespace: (!namespace.is_empty()).then(|| namespace.to_owned()),
            name: (!name.is_empty()).then(|| name.to_owned()),
        };
        let info = RequestInfo {
            verb: Verb::Other,
            method: Method::GET,
            path: String::new(),
            query: String::new(),
            resource: None,
            options: crate::request::Options {
                field_manager: Some("kube-apiserver".into()),
                ..Default::default()
            },
        };
        let identity = Identity::admin("system:apiserver");
        let headers = HeaderMap::new();
        act(Call {
            api: self,
            info: &info,
            path: &path,
            kind: kind.clone(),
            identity: &identity,
            headers: &headers,
            upgrade: None,
            body: bytes::Bytes::new(),
            passed: parking_lot::Mutex::default(),
            accept: accept::JSON,
            now: self.now(),
            warnings: parking_lot::Mutex::default(),
        })
        .await
    }

    /// Deletes an object on the server's own behalf, unless it is gone.
    pub(crate) async fn delete_as_system(
        &self,
        kind: &Arc<Kind>,
        key: &Key,
        options: &DeleteOptions,
    ) -> Result<(), Failure> {
        let delete = async |call: Call<'_>| call.delete_object(options).await.map(|_| ());
        match self.as_system(kind, &key.namespace, &key.name, delete).await {
            Err(Failure::NotFound(..)) => Ok(()),
            other => other,
        }
    }

    /// Creates an object on the server's own behalf, unless it is there.
    pub(crate) async fn create_as_system(&self, kind: &Arc<Kind>, mut object: Value) -> Result<(), Failure> {
        kind.default(&mut object);
        let namespace = object::meta(&object, "namespace").to_owned();
        let result = self
            .as_system(kind, &namespace, "", async |call| call.create(object, false).await.map(|_| ()))
            .await;
        match result {
            Err(Failure::AlreadyExists { .. }) => Ok(()),
            other => other,
        }
    }
}
