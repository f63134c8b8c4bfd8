//! Reading JSON and YAML strictly enough to name a field that is written twice.
//!
//! **Always holds:** a value that was read nests at most [`MAX_DEPTH`] deep, so that whatever recurses
//! over it, its own `drop` included, needs no thought for the stack.

use std::{cell::RefCell, collections::BTreeSet, fmt};

use serde::de::{
    self, Deserialize, DeserializeOwned, DeserializeSeed, Deserializer, MapAccess, SeqAccess, Visitor,
};
use serde_json::{Map, Number, Value};
use serde_saphyr::{Error, Spanned, budget::BudgetBreach};

use crate::words;

/// How deep objects and lists may nest.
///
/// Go reads 10,000 levels; what is written in Rust with `serde_json`, our own controllers among it,
/// reads 127. A few levels are left for what an object comes in: a list, a watch's event, and the
/// managed fields, which nest as deep as what they describe.
pub const MAX_DEPTH: usize = 120;

/// How deep YAML may nest to be read where we are: its parser takes much of the stack for each level.
const NEAR_YAML_DEPTH: usize = 64;

/// The stack of a reader of deeper YAML: [`MAX_DEPTH`] levels take 3 MiB of it where nothing is optimised.
const FAR_YAML_STACK: usize = 16 << 20;

/// How many findings a strict reader keeps. Kubernetes' own stops at as many: nobody reads more, and the path of each
/// may be as long as the whole text.
pub const MAX_FINDINGS: usize = 100;

/// Why text is not a value.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum JsonError {
    /// The text is not JSON or not YAML; one line, in Go's words where it is JSON.
    #[error("{0}")]
    Syntax(String),
    /// Objects or lists nest deeper than [`MAX_DEPTH`].
    #[error("exceeded max depth of {MAX_DEPTH}")]
    Depth,
}

/// A value and what a strict reader complains about.
#[derive(Debug, Clone, PartialEq)]
pub struct Parsed {
    /// The value; of a field that is written twice, the last.
    pub value: Value,
    /// The paths of fields that are written twice, in order: `spec.size`. At most [`MAX_FINDINGS`].
    pub duplicates: Vec<String>,
}

/// Reads JSON.
///
/// # Errors
///
/// When the text is not JSON or nests too deep.
pub fn parse(text: &[u8]) -> Result<Parsed, JsonError> {
    let failure = |error: serde_json::Error| {
        let message = error.to_string();
        if message.contains(TOO_DEEP) || message.contains("recursion limit") {
            return JsonError::Depth;
        }
        JsonError::Syntax(words::of_syntax_error(&error, text))
    };
    let mut reader = serde_json::Deserializer::from_slice(text);
    let notes = Notes::default();
    let value = Node::root(&notes).deserialize(&mut reader).map_err(failure)?;
    reader.end().map_err(failure)?;
    Ok(Parsed { value, duplicates: notes.duplicates.into_inner() })
}

/// Reads one YAML document; JSON is YAML too.
///
/// # Errors
///
/// When the text is not YAML or nests too deep.
pub fn parse_yaml(text: &[u8]) -> Result<Parsed, JsonError> {
    if text.trim_ascii_start().starts_with(b"{") {
        let read = parse(text);
        if !matches!(read, Err(JsonError::Syntax(_))) {
            return read;
        }
    }
    let Bounded(value, duplicates) = yaml(text)?;
    Ok(Parsed { value, duplicates })
}

/// What Kubernetes' reader of YAML says of each field that is written twice, in the order of
/// [`Parsed::duplicates`]: `line 3: key "a" already set in map`. Nothing of text that is not YAML; JSON is.
#[must_use]
pub fn written_twice(text: &[u8]) -> Vec<String> {
    let mut found = Vec::new();
    if let Ok(tree) = yaml::<Tree>(text) {
        tree.twice(&mut found);
    }
    found
}

fn yaml<T: DeserializeOwned + Send>(text: &[u8]) -> Result<T, JsonError> {
    let text = std::str::from_utf8(text).map_err(|error| JsonError::Syntax(format!("yaml: {error}")))?;
    let read = match yaml_within(NEAR_YAML_DEPTH, text) {
        Err(JsonError::Depth) => std::thread::scope(|scope| {
            let reader = std::thread::Builder::new().stack_size(FAR_YAML_STACK);
            let reader = reader.spawn_scoped(scope, || yaml_within(MAX_DEPTH, text));
            reader.ok().and_then(|reader| reader.join().ok()).unwrap_or(Err(JsonError::Depth))
        }),
        read => read,
    };
    read.map_err(|error| match error {
        JsonError::Depth => JsonError::Syntax(format!("yaml: {error}")),
        syntax => syntax,
    })
}

fn yaml_within<T: DeserializeOwned>(max_depth: usize, text: &str) -> Result<T, JsonError> {
    // File modes are written `0400`, and Kubernetes reads YAML 1.1, where that is octal.
    let options = serde_saphyr::options! {
        legacy_octal_numbers: true,
        duplicate_keys: serde_saphyr::DuplicateKeyPolicy::LastWins,
        budget: serde_saphyr::budget! { max_depth: max_depth },
    };
    serde_saphyr::from_str_with_options(text, options).map_err(|error| {
        if let Error::Budget { breach: BudgetBreach::Depth { .. }, .. } = error.without_snippet() {
            return JsonError::Depth;
        }
        let message = error.to_string();
        // Its scanner has a limit of its own for brackets, beyond ours.
        if message.contains("recursion limit") {
            return JsonError::Depth;
        }
        // What follows the first line is a picture of the place.
        let first = message.lines().next().unwrap_or_default();
        JsonError::Syntax(format!("yaml: {}", first.trim_start_matches("error: ")))
    })
}

/// Whether a value that was put together from several nests no deeper than one that was read.
#[must_use]
pub fn is_bearable(value: &Value) -> bool {
    is_bearable_at(0, value)
}

/// Whether a value may stand that deep in another: at the end of a path of so many parts. Looks no deeper than that.
#[must_use]
pub fn is_bearable_at(depth: usize, value: &Value) -> bool {
    fn within(value: &Value, left: usize) -> bool {
        match value {
            Value::Array(items) => left > 0 && items.iter().all(|item| within(item, left - 1)),
            Value::Object(fields) => left > 0 && fields.values().all(|field| within(field, left - 1)),
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => true,
        }
    }
    MAX_DEPTH.checked_sub(depth).is_some_and(|left| within(value, left))
}

const TOO_DEEP: &str = "exceeded max depth";

/// A value whose depth was counted as it was read, and the paths of fields that are in it twice.
struct Bounded(Value, Vec<String>);

impl<'de> Deserialize<'de> for Bounded {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let notes = Notes::default();
        let value = Node::root(&notes).deserialize(deserializer)?;
        Ok(Self(value, notes.duplicates.into_inner()))
    }
}

/// The fields of YAML and where their values begin; all other values are of no interest here.
enum Tree {
    Map(Vec<(String, Spanned<Tree>)>),
    List(Vec<Tree>),
    Leaf,
}

impl Tree {
    fn twice(&self, found: &mut Vec<String>) {
        match self {
            Self::Leaf => {}
            Self::List(items) => items.iter().for_each(|item| item.twice(found)),
            Self::Map(fields) => {
                let mut names = BTreeSet::new();
                for (name, value) in fields {
                    value.value.twice(found);
                    if !names.insert(name) {
                        let line = value.referenced.line();
                        found.push(format!("line {line}: key {name:?} already set in map"));
                    }
                }
            }
        }
    }
}

impl<'de> Deserialize<'de> for Tree {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Reader;
        impl<'de> Visitor<'de> for Reader {
            type Value = Tree;

            fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
                formatter.write_str("a YAML value")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut fields: A) -> Result<Tree, A::Error> {
                let mut tree = Vec::new();
                while let Some(field) = fields.next_entry()? {
                    tree.push(field);
                }
                Ok(Tree::Map(tree))
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Tree, A::Error> {
                let mut tree = Vec::new();
                while let Some(item) = items.next_element()? {
                    tree.push(item);
                }
                Ok(Tree::List(tree))
            }

            fn visit_unit<E>(self) -> Result<Tree, E> {
                Ok(Tree::Leaf)
            }

            fn visit_bool<E>(self, _: bool) -> Result<Tree, E> {
                Ok(Tree::Leaf)
            }

            fn visit_i64<E>(self, _: i64) -> Result<Tree, E> {
                Ok(Tree::Leaf)
            }

            fn visit_u64<E>(self, _: u64) -> Result<Tree, E> {
                Ok(Tree::Leaf)
            }

            fn visit_f64<E>(self, _: f64) -> Result<Tree, E> {
                Ok(Tree::Leaf)
            }

            fn visit_str<E>(self, _: &str) -> Result<Tree, E> {
                Ok(Tree::Leaf)
            }
        }
        deserializer.deserialize_any(Reader)
    }
}

/// Where a reader is; written out only when something is found.
pub(crate) enum Path<'a> {
    Root,
    Field(&'a Path<'a>, &'a str),
    Index(&'a Path<'a>, usize),
}

impl fmt::Display for Path<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Root => Ok(()),
            Self::Field(Self::Root, name) => f.write_str(name),
            Self::Field(parent, name) => write!(f, "{parent}.{name}"),
            Self::Index(parent, index) => write!(f, "{parent}[{index}]"),
        }
    }
}

/// What is written down on the way.
#[derive(Default)]
struct Notes {
    /// The paths of fields that are written twice.
    duplicates: RefCell<Vec<String>>,
}

struct Node<'a> {
    path: &'a Path<'a>,
    depth: usize,
    notes: &'a Notes,
}

impl<'a> Node<'a> {
    fn root(notes: &'a Notes) -> Self {
        Self { path: &Path::Root, depth: 0, notes }
    }
}

impl<'de> DeserializeSeed<'de> for Node<'_> {
    type Value = Value;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Node<'_> {
    type Value = Value;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("a JSON value")
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_none<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_some<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        self.deserialize(deserializer)
    }

    fn visit_bool<E>(self, value: bool) -> Result<Value, E> {
        Ok(Value::Bool(value))
    }

    fn visit_i64<E>(self, value: i64) -> Result<Value, E> {
        Ok(value.into())
    }

    /// A whole number that no `int64` holds is a float to Kubernetes.
    #[expect(clippy::cast_precision_loss, reason = "a float is what it becomes")]
    fn visit_u64<E>(self, value: u64) -> Result<Value, E> {
        Ok(i64::try_from(value).map_or_else(|_| (value as f64).into(), Value::from))
    }

    /// A whole number is one however it is written: Kubernetes reads `1.0` and gives back `1`.
    #[expect(clippy::cast_possible_truncation, reason = "whole and within what a double holds exactly")]
    fn visit_f64<E>(self, value: f64) -> Result<Value, E> {
        if value.fract() == 0.0 && value.abs() <= 9_007_199_254_740_992.0 {
            return Ok((value as i64).into());
        }
        Ok(Number::from_f64(value).map_or(Value::Null, Value::Number))
    }

    fn visit_str<E>(self, value: &str) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_string<E>(self, value: String) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Value, A::Error> {
        let depth = deeper(self.depth)?;
        let mut list = Vec::new();
        loop {
            let path = Path::Index(self.path, list.len());
            match items.next_element_seed(Node { path: &path, depth, notes: self.notes })? {
                Some(item) => list.push(item),
                None => return Ok(Value::Array(list)),
            }
        }
    }

    fn visit_map<A: MapAccess<'de>>(self, mut fields: A) -> Result<Value, A::Error> {
        let depth = deeper(self.depth)?;
        let mut object = Map::new();
        let mut twice = BTreeSet::new();
        while let Some(name) = fields.next_key::<String>()? {
            let path = Path::Field(self.path, &name);
            let value = fields.next_value_seed(Node { path: &path, depth, notes: self.notes })?;
            if object.contains_key(&name) && twice.insert(name.clone()) {
                let mut duplicates = self.notes.duplicates.borrow_mut();
                if duplicates.len() < MAX_FINDINGS {
                    duplicates.push(path.to_string());
                }
            }
            object.insert(name, value);
        }
        Ok(Value::Object(object))
    }
}

fn deeper<E: de::Error>(depth: usize) -> Result<usize, E> {
    if depth >= MAX_DEPTH {
        return Err(E::custom(TOO_DEEP));
    }
    Ok(depth + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_field_written_twice_is_named_by_its_path() {
        for (text, expected) in [
            (r#"{"a":1,"b":2}"#, vec![]),
            (r#"{"spec":{"size":1,"size":2}}"#, vec!["spec.size"]),
            (r#"{"l":[{"a":1},{"a":1,"a":2}],"kind":"A","kind":"B"}"#, vec!["l[1].a", "kind"]),
            (r#"{"a":1,"a":2,"a":3,"b":4,"b":5}"#, vec!["a", "b"]),
        ] {
            assert_eq!(parse(text.as_bytes()).unwrap().duplicates, expected, "{text}");
        }
    }

    #[test]
    fn no_more_fields_are_named_than_a_strict_reader_keeps() {
        let fields: Vec<String> = (0..1_000).map(|n| format!(r#""f{n:03}":1,"f{n:03}":2"#)).collect();
        let text = format!("{{{}}}", fields.join(","));
        let named = parse(text.as_bytes()).unwrap().duplicates;
        assert_eq!((named.len(), named.last().map(String::as_str)), (MAX_FINDINGS, Some("f099")));
    }

    #[test]
    fn the_last_of_two_wins_and_numbers_stay_what_they_are() {
        let parsed = parse(
            br#"{"a":1,"a":{"big":18446744073709551615,"small":-3,"part":0.5,"whole":1.0,"none":null}}"#,
        );
        let big = 18_446_744_073_709_551_615.0;
        let expected =
            serde_json::json!({"a": {"big": big, "small": -3, "part": 0.5, "whole": 1, "none": null}});
        assert_eq!(parsed.map(|parsed| parsed.value), Ok(expected));
    }

    #[test]
    fn the_last_of_two_wins_in_yaml_too() {
        let twice = parse_yaml(b"spec: {size: 3}\na: 1\nspec: {size: 4, b: x, b: z}\n");
        let expected = serde_json::json!({"a": 1, "spec": {"size": 4, "b": "z"}});
        let duplicates = ["spec.b", "spec"].map(ToOwned::to_owned).to_vec();
        assert_eq!(twice, Ok(Parsed { value: expected, duplicates }));
    }

    #[test]
    fn a_field_written_twice_in_yaml_is_named_by_its_line() {
        let check = |text: &str, expected: &[&str]| {
            assert_eq!(written_twice(text.as_bytes()), expected, "{text}");
        };
        check("a: 1\nb: [{a: 1}, {a: 2}]\n", &[]);
        check(
            "a: 1\nspec:\n  b: x\n  b:\n    z\na:\n  c: 1\n",
            &[r#"line 5: key "b" already set in map"#, r#"line 7: key "a" already set in map"#],
        );
        check(
            "{\"a\":[{\"x y\":true,\n\t\"x y\":null}],\"b\":1.5,\n\"b\":\"\"}",
            &[r#"line 2: key "x y" already set in map"#, r#"line 3: key "b" already set in map"#],
        );
        let deep = MAX_DEPTH - 1;
        let text = format!("{}{{\"a\":1,\"a\":2}}{}", "[".repeat(deep), "]".repeat(deep));
        check(&text, &[r#"line 1: key "a" already set in map"#]);
    }

    #[test]
    fn yaml_may_nest_as_deep_as_json() {
        let flow = |levels: usize| format!("- {}{}", "[".repeat(levels - 1), "]".repeat(levels - 1));
        let block =
            |levels: usize| -> String { (0..levels).map(|level| " ".repeat(level) + "a:\n").collect() };
        for nested in [&flow as &dyn Fn(usize) -> String, &block] {
            for levels in [NEAR_YAML_DEPTH, NEAR_YAML_DEPTH + 1, MAX_DEPTH] {
                assert!(parse_yaml(nested(levels).as_bytes()).is_ok(), "{levels}");
            }
            for levels in [MAX_DEPTH + 1, 200, 1_000] {
                let refused = JsonError::Syntax(format!("yaml: exceeded max depth of {MAX_DEPTH}"));
                assert_eq!(parse_yaml(nested(levels).as_bytes()), Err(refused), "{levels}");
            }
        }
    }

    #[test]
    fn text_that_nests_too_deep_is_refused() {
        for depth in [MAX_DEPTH + 1, 10_000, 1_000_000] {
            let text = "[".repeat(depth) + &"]".repeat(depth);
            assert_eq!(parse(text.as_bytes()), Err(JsonError::Depth));
        }
        let text = "[".repeat(MAX_DEPTH) + &"]".repeat(MAX_DEPTH);
        let mut value = parse(text.as_bytes()).unwrap().value;
        assert!(is_bearable(&value) && !is_bearable_at(1, &value));
        value = Value::Array(vec![value]);
        assert!(!is_bearable(&value));
        assert!(is_bearable_at(MAX_DEPTH, &Value::Null) && !is_bearable_at(MAX_DEPTH + 1, &Value::Null));
    }

    /// A value as deep as can be, in all that it comes in, is read by readers with a limit.
    #[test]
    fn the_deepest_object_is_read_by_everybody() {
        let object = "{\"f:a\":".repeat(MAX_DEPTH) + "1" + &"}".repeat(MAX_DEPTH);
        let event = format!("{{\"object\":{{\"items\":[{{\"managedFields\":[{object}]}}]}}}}");
        assert!(serde_json::from_str::<Value>(&event).is_ok());
    }

    #[test]
    fn broken_json_is_described_as_go_describes_it() {
        for (text, expected) in [
            ("", "unexpected end of JSON input"),
            ("{", "unexpected end of JSON input"),
            ("no", "invalid character 'o' in literal null (expecting 'u')"),
            (r#"{"a":trux}"#, "invalid character 'x' in literal true (expecting 'e')"),
            ("x", "invalid character 'x' looking for beginning of value"),
            (r#"{"a":1 "b"}"#, "invalid character '\"' after object key:value pair"),
            ("[1 2]", "invalid character '2' after array element"),
            (r#"{"a" 1}"#, "invalid character '1' after object key"),
            ("{} x", "invalid character 'x' after top-level value"),
            ("{a", "invalid character 'a' looking for beginning of object key string"),
        ] {
            assert_eq!(parse(text.as_bytes()), Err(JsonError::Syntax(expected.to_owned())), "{text}");
        }
    }

    #[test]
    fn yaml_is_read_too() {
        let parsed = parse_yaml(b"apiVersion: v1\nkind: ConfigMap\ndata:\n  a: \"1\"\n  b: |\n    text\n");
        let expected =
            serde_json::json!({"apiVersion": "v1", "kind": "ConfigMap", "data": {"a": "1", "b": "text\n"}});
        assert_eq!(parsed.map(|parsed| parsed.value), Ok(expected));
    }

    #[test]
    fn a_leading_zero_in_yaml_makes_a_number_octal() {
        let parsed = parse_yaml(b"{a: 0400, b: \"0400\", c: 0o17, d: 10, e: 0}");
        let expected = serde_json::json!({"a": 0o400, "b": "0400", "c": 0o17, "d": 10, "e": 0});
        assert_eq!(parsed.map(|parsed| parsed.value), Ok(expected));
    }

    #[test]
    fn broken_yaml_is_described_in_one_line() {
        for text in ["a: [1, 2", "a: b: c", "a:\n\t- b", "{a: 'x}\nb: 1\n", "- a\nb: c\n"] {
            let Err(JsonError::Syntax(message)) = parse_yaml(text.as_bytes()) else { panic!("{text}") };
            assert!(message.starts_with("yaml: ") && !message.contains('\n'), "{message}");
        }
    }
}
