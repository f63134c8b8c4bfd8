//! Words that a person pastes into a shell.

use std::path::Path;

/// A path as one word of a POSIX shell: as it is where nothing in it is special, in quotes otherwise.
pub fn word(path: &Path) -> String {
    let text = path.to_string_lossy();
    let plain = |c: char| c.is_ascii_alphanumeric() || "/._-+,@%:".contains(c);
    if !text.is_empty() && text.chars().all(plain) {
        return text.into_owned();
    }
    format!("'{}'", text.replace('\'', r"'\''"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_shell_would_take_apart_is_quoted() {
        for (path, expected) in [
            ("/run/user/1000/ballast/kubeconfig", "/run/user/1000/ballast/kubeconfig"),
            ("/a b/c", "'/a b/c'"),
            ("/it's", r"'/it'\''s'"),
            ("$HOME", "'$HOME'"),
            ("", "''"),
        ] {
            assert_eq!(word(Path::new(path)), expected);
        }
    }
}
