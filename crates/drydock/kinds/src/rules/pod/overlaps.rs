//! Files of a volume that are in each other's place.

use std::fmt;

use serde_json::Value;

use crate::json;

/// A file, and where in a volume of several sources it comes from.
#[derive(PartialEq, Eq)]
struct File {
    path: String,
    source: String,
}

impl File {
    fn new(path: &str, source: &str) -> Self {
        Self { path: path.trim_end_matches('/').to_owned(), source: source.to_owned() }
    }

    /// Whether one is the other, or a directory that the other is in.
    fn overlaps(&self, other: &Self) -> bool {
        let (a, b) = (format!("{}/", self.path), format!("{}/", other.path));
        !self.path.is_empty() && !other.path.is_empty() && (a.starts_with(&b) || b.starts_with(&a))
    }
}

impl fmt::Display for File {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", self.path)?;
        if self.source.is_empty() { Ok(()) } else { write!(f, " ({})", self.source) }
    }
}

/// What is worth saying about the files of each volume.
pub(super) fn warnings(volumes: &[Value], warnings: &mut Vec<String>) {
    for volume in volumes {
        let name = json::text(volume, "name");
        for (kind, what, key) in [("configMap", "ConfigMap", "name"), ("secret", "Secret", "secretName")] {
            let source = &volume[kind];
            let description = format!("{what} {:?}", json::text(source, key));
            clashes(name, &description, &files(source, ""), warnings);
        }
        clashes(name, "DownwardAPI", &files(&volume["downwardAPI"], ""), warnings);
        let mut before = Vec::new();
        for source in json::list(&volume["projected"], "sources") {
            if source.as_object().is_none_or(serde_json::Map::is_empty) {
                warnings.push(format!("volume {name:?} (Projected) has no sources provided"));
            }
            for file in projected(source) {
                clash(name, "Projected", &file, &before, warnings);
                before.push(file);
            }
        }
    }
}

fn files(source: &Value, description: &str) -> Vec<File> {
    let items = json::list(source, "items").iter();
    items.map(|item| File::new(json::text(item, "path"), description)).collect()
}

/// The files of one source of several, with what they come from.
fn projected(source: &Value) -> Vec<File> {
    for (kind, what) in [("configMap", "ConfigMap"), ("secret", "Secret")] {
        if source[kind]["items"].is_array() {
            return files(&source[kind], &format!("{what} {:?}", json::text(&source[kind], "name")));
        }
    }
    if source["downwardAPI"]["items"].is_array() {
        return files(&source["downwardAPI"], "DownwardAPI");
    }
    let token = source.get("serviceAccountToken");
    token.map(|token| File::new(json::text(token, "path"), "ServiceAccountToken")).into_iter().collect()
}

fn clashes(volume: &str, description: &str, files: &[File], warnings: &mut Vec<String>) {
    for (index, file) in files.iter().enumerate() {
        clash(volume, description, file, &files[..index], warnings);
    }
}

/// One file against those before it.
fn clash(volume: &str, description: &str, file: &File, before: &[File], warnings: &mut Vec<String>) {
    for other in before.iter().filter(|other| file.overlaps(other)) {
        warnings.push(format!("volume {volume:?} ({description}): overlapping paths: {file} with {other}"));
    }
}
