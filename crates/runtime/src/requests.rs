//! Counting requests to the API server.

use std::sync::Arc;

use kube::{Client, client::Body};

use crate::metrics::Metrics;

/// The same client, with each of its requests counted.
pub(crate) fn counted(client: Client, metrics: Metrics, host: Arc<str>) -> Client {
    let namespace = client.default_namespace().to_owned();
    let service = tower::service_fn(move |request: http::Request<Body>| {
        let (client, metrics, host) = (client.clone(), metrics.clone(), Arc::clone(&host));
        async move {
            let method = request.method().clone();
            let answer = client.send(request).await;
            let code = answer.as_ref().ok().map(|answer| answer.status().as_u16());
            metrics.request(code, &host, &method);
            answer
        }
    });
    Client::new(service, namespace)
}
