//! `kubectl port-forward`.

use std::io::{BufRead as _, BufReader};
use std::net::TcpStream;
use std::process::{Child, ChildStdout, Stdio};

use super::Cluster;

/// `kubectl port-forward` to a free port of this machine.
pub struct Forward {
    child: Child,
    port: u16,
    /// Read from, or the next line that kubectl prints would be its end.
    _said: BufReader<ChildStdout>,
}

impl Forward {
    pub fn to(cluster: &Cluster, what: &str, port: &str) -> Self {
        let mut command = cluster.command();
        command.args(["port-forward", what, &format!(":{port}")]).stdout(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let mut said = BufReader::new(child.stdout.take().unwrap());
        let mut line = String::new();
        said.read_line(&mut line).unwrap();
        let port = line.split_whitespace().nth(2).and_then(|address| address.rsplit_once(':')).unwrap().1;
        Forward { child, port: port.parse().unwrap(), _said: said }
    }

    pub fn port(&self) -> u16 {
        self.port
    }

    pub fn connect(&self) -> TcpStream {
        TcpStream::connect(("127.0.0.1", self.port)).unwrap()
    }
}

impl Drop for Forward {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
