//! Passwords, from files.

use std::fmt;
use std::fs::File;
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};

use ring::rand::{SecureRandom as _, SystemRandom};

use crate::backup::{BackupError, hex};

/// No password is longer; a file that is was named by mistake.
const LONGEST: u64 = 4096;

/// A password, and where it came from. It prints as nothing.
#[derive(Clone)]
pub struct Secret {
    text: String,
    file: PathBuf,
}

/// Why a file holds no password.
#[derive(Debug, thiserror::Error)]
pub enum SecretError {
    /// It can't be read.
    #[error("the password file {path:?} can't be read")]
    Read {
        /// Which.
        path: PathBuf,
        /// What the system says.
        #[source]
        error: io::Error,
    },
    /// What it holds can't be one.
    #[error("the password file {path:?} {what}")]
    Content {
        /// Which.
        path: PathBuf,
        /// What is wrong with it.
        what: &'static str,
    },
}

impl Secret {
    /// What a file holds, but for the end of a last line.
    ///
    /// # Errors
    /// When it holds no password.
    pub fn read(path: &Path) -> Result<Secret, SecretError> {
        let mut bytes = Vec::new();
        File::open(path)
            .and_then(|file| file.take(LONGEST + 1).read_to_end(&mut bytes))
            .map_err(|error| SecretError::Read { path: path.to_owned(), error })?;
        let content = |what| SecretError::Content { path: path.to_owned(), what };
        if bytes.len() as u64 > LONGEST {
            return Err(content("is too long"));
        }
        let mut text = String::from_utf8(bytes).map_err(|_| content("is no text"))?;
        if text.ends_with('\n') {
            text.pop();
        }
        match text.as_str() {
            "" => Err(content("is empty")),
            text if text.contains('\0') => Err(content("holds a zero byte")),
            _ => Ok(Secret { text, file: path.to_owned() }),
        }
    }

    /// One that nobody knows, with all that a server may want to see in one. No file holds it.
    pub(crate) fn random() -> Result<Secret, BackupError> {
        let mut bytes = [0; 24];
        let random = SystemRandom::new().fill(&mut bytes);
        random.map_err(|_| BackupError::Refused("there is no randomness for a password".to_owned()))?;
        Ok(Secret { text: format!("A-{}", hex(&bytes)), file: PathBuf::new() })
    }

    /// What its file holds by now, where that is another password.
    pub(crate) fn changed(&self) -> Option<Secret> {
        Secret::read(&self.file).ok().filter(|now| now.text != self.text)
    }

    /// The password itself.
    pub(crate) fn expose(&self) -> &str {
        &self.text
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret")
    }
}

#[cfg(test)]
pub(crate) fn of(text: &str) -> Secret {
    Secret { text: text.to_owned(), file: PathBuf::new() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_holds_a_password_and_perhaps_the_end_of_a_line() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("password");
        for (bytes, expected) in [
            (&b"secret"[..], Ok("secret")),
            (b"secret\n", Ok("secret")),
            (b"two\nlines\n\n", Ok("two\nlines\n")),
            (b"\n", Err("is empty")),
            (b"", Err("is empty")),
            (b"a\0b", Err("holds a zero byte")),
            (b"\xff", Err("is no text")),
            (&[b'x'; 5000], Err("is too long")),
        ] {
            std::fs::write(&path, bytes).unwrap();
            let read = Secret::read(&path);
            assert!(!format!("{:?}", read.as_ref().ok()).contains("secret"));
            match (read, expected) {
                (Ok(secret), Ok(expected)) => assert_eq!(secret.expose(), expected),
                (Err(error), Err(expected)) => assert!(error.to_string().ends_with(expected), "{error}"),
                (read, expected) => panic!("{read:?} instead of {expected:?}"),
            }
        }
        assert_ne!(Secret::random().unwrap().expose(), Secret::random().unwrap().expose());
        assert!(Secret::read(Path::new("/nonexistent")).unwrap_err().to_string().ends_with("can't be read"));
    }
}
