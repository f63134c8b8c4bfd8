//! tmp
#[tokio::main]
async fn main() {
    let d = drydock::Drydock::builder().start().await.unwrap();
    d.serve(tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap()).unwrap();
    d.write_kubeconfig(std::path::Path::new("/tmp/tmp-drydock.kubeconfig")).unwrap();
    println!("{}", d.url().unwrap());
    tokio::time::sleep(std::time::Duration::from_secs(60)).await;
    d.shutdown().await;
}
