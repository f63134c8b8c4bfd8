//! Follows Services and EndpointSlices.

use std::sync::Arc;

use futures::StreamExt;
use k8s_openapi::api::core::v1::Service;
use k8s_openapi::api::discovery::v1::EndpointSlice;
use kube::runtime::watcher::{self, Event};
use kube::runtime::{WatchStreamExt, watcher as watch_kind};
use kube::{Api, Client};
use tokio::sync::watch;

use crate::view::{Objects, View};

/// Changes that are taken in before the view is made anew: a rollout of many pods is not many views.
const AT_ONCE: usize = 64;

enum Change {
    Service(Box<Event<Service>>),
    Slice(Box<Event<EndpointSlice>>),
}

/// Publishes a view for each change, from when all that there is was seen.
pub(crate) async fn follow(client: Client, publish: watch::Sender<Arc<View>>) {
    let services = watch_kind(Api::<Service>::all(client.clone()), watcher::Config::default());
    let slices = watch_kind(Api::<EndpointSlice>::all(client), watcher::Config::default());
    let services =
        services.default_backoff().map(|event| event.map(|event| Change::Service(Box::new(event)))).boxed();
    let slices =
        slices.default_backoff().map(|event| event.map(|event| Change::Slice(Box::new(event)))).boxed();
    let mut changes = futures::stream::select(services, slices).ready_chunks(AT_ONCE);
    let mut state = State::default();
    while let Some(batch) = changes.next().await {
        for change in batch {
            match change {
                Ok(change) => state.take_in(change),
                // It is tried again and again, and nothing of what is known is forgotten.
                Err(error) => tracing::debug!(%error, "services can't be followed"),
            }
        }
        if state.complete == [true; 2] {
            publish.send_replace(Arc::new(state.objects.view()));
        }
    }
}

#[derive(Default)]
struct State {
    objects: Objects,
    services: Vec<Service>,
    slices: Vec<EndpointSlice>,
    complete: [bool; 2],
}

impl State {
    fn take_in(&mut self, change: Change) {
        match change {
            Change::Service(event) => match *event {
                Event::Apply(object) => self.objects.set_service(&object),
                Event::Delete(object) => self.objects.remove_service(&object),
                Event::Init => self.services.clear(),
                Event::InitApply(object) => self.services.push(object),
                Event::InitDone => {
                    let all = std::mem::take(&mut self.services);
                    self.objects.keep_services(&all);
                    all.iter().for_each(|object| self.objects.set_service(object));
                    self.complete[0] = true;
                }
            },
            Change::Slice(event) => match *event {
                Event::Apply(object) => self.objects.set_slice(&object),
                Event::Delete(object) => self.objects.remove_slice(&object),
                Event::Init => self.slices.clear(),
                Event::InitApply(object) => self.slices.push(object),
                Event::InitDone => {
                    let all = std::mem::take(&mut self.slices);
                    self.objects.keep_slices(&all);
                    all.iter().for_each(|object| self.objects.set_slice(object));
                    self.complete[1] = true;
                }
            },
        }
    }
}
