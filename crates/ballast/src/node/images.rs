//! Images for a node that reaches no package archive: `ballast up` makes them in the store that both use.

use std::io::{self, BufRead as _, BufReader, Write as _};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;

use drydock_images::{Pull, Reference, Report, Resolved, Store};
use drydock_node::{ImageError, Images};
use serde::{Deserialize, Serialize};

/// What is asked.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Question {
    /// The image's name.
    pub image: String,
    /// Whether one that is there is looked at again.
    pub again: bool,
}

/// What is answered.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Answer {
    /// It is there.
    Made,
    /// It is not.
    Failed {
        /// The reason that Kubernetes gives.
        reason: String,
        /// Its message.
        message: String,
    },
}

/// The store, and where what is not in it is made.
pub struct Made {
    /// The store.
    pub store: Store,
    /// Where `up` listens.
    pub maker: PathBuf,
}

impl Images for Made {
    fn resolve(&self, reference: &Reference, pull: Pull, report: Report<'_>) -> Result<Resolved, ImageError> {
        let here = |pull| Images::resolve(&self.store, reference, pull, report);
        match pull {
            Pull::Never => return here(Pull::Never),
            Pull::IfNotPresent => {
                if let Ok(resolved) = here(Pull::Never) {
                    return Ok(resolved);
                }
            }
            Pull::Always => {}
        }
        let answer = self.ask(&Question { image: reference.to_string(), again: pull == Pull::Always });
        match answer {
            Ok(Answer::Made) => here(Pull::Never).map(|resolved| Resolved { present: false, ..resolved }),
            Ok(Answer::Failed { reason, message }) => Err(ImageError { reason, message }),
            Err(error) => Err(ImageError {
                reason: "ErrImagePull".to_owned(),
                message: format!("nobody makes images now: {error}"),
            }),
        }
    }
}

impl Made {
    fn ask(&self, question: &Question) -> io::Result<Answer> {
        let mut stream = UnixStream::connect(&self.maker)?;
        writeln!(stream, "{}", serde_json::to_string(question)?)?;
        let mut line = String::new();
        BufReader::new(stream).read_line(&mut line)?;
        Ok(serde_json::from_str(&line)?)
    }
}
