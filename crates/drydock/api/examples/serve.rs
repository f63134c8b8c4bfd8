//! Serves an API in plain text on 127.0.0.1, for trying things out by hand.

use std::sync::Arc;

use drydock_access::{Identity, SigningKey, Tokens};
use drydock_api::{Api, Caller, Options};
use hyper_util::rt::{TokioExecutor, TokioIo};

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let store = drydock_store::Store::in_memory(drydock_store::Options::default());
    let api = Api::new(store, Options::new(Arc::new(Tokens::new(SigningKey::generate()?))));
    api.bootstrap().await?;
    let listener = tokio::net::TcpListener::bind(std::env::args().nth(1).unwrap_or("127.0.0.1:0".into())).await?;
    println!("http://{}", listener.local_addr()?);
    loop {
        let (stream, _) = listener.accept().await?;
        let api = api.clone();
        tokio::spawn(async move {
            let service = hyper::service::service_fn(move |request| {
                let api = api.clone();
                async move {
                    Ok::<_, std::convert::Infallible>(
                        api.handle(request, Caller::Trusted(Identity::admin("admin"))).await,
                    )
                }
            });
            let builder = hyper_util::server::conn::auto::Builder::new(TokioExecutor::new());
            let _ = builder.serve_connection_with_upgrades(TokioIo::new(stream), service).await;
        });
    }
}
