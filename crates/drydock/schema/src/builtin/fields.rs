//! The fields of a Go struct, as protobuf and JSON encoders see them.

/// The fields of a type, sorted by number.
#[derive(Debug, Default)]
pub(crate) struct Message {
    pub(crate) fields: Vec<Field>,
    /// In JSON the type is the list that is its only field.
    pub(crate) is_list: bool,
}

/// One field.
#[derive(Debug)]
pub(crate) struct Field {
    pub(crate) number: u64,
    /// Its name in JSON; empty when it is inlined.
    pub(crate) name: String,
    pub(crate) kind: Kind,
    pub(crate) repeated: bool,
    /// A map from strings to values of the kind.
    pub(crate) map: bool,
    pub(crate) pointer: bool,
    pub(crate) omit_empty: bool,
    pub(crate) omit_zero: bool,
    pub(crate) inline: bool,
}

/// What a value is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    String,
    Bool,
    Integer,
    Double,
    Bytes,
    /// Another type, by the name of its definition.
    Message(&'static str),
}

impl Message {
    /// Reads the third column of the table.
    pub(super) fn read(column: &'static str) -> Self {
        let rows: Vec<(u64, String, &'static str, String)> = serde_json::from_str(column).unwrap_or_default();
        let mut message = Self::default();
        for (number, name, kind, flags) in rows {
            message.is_list |= flags.contains('a');
            message.fields.push(Field {
                number,
                name,
                kind: match kind {
                    "string" => Kind::String,
                    "bool" => Kind::Bool,
                    "bytes" => Kind::Bytes,
                    "double" => Kind::Double,
                    kind if kind.contains('.') => Kind::Message(kind),
                    _ => Kind::Integer,
                },
                repeated: flags.contains('r'),
                map: flags.contains('m'),
                pointer: flags.contains('p'),
                omit_empty: flags.contains('o'),
                omit_zero: flags.contains('z'),
                inline: flags.contains('i'),
            });
        }
        message.fields.sort_unstable_by_key(|field| field.number);
        message
    }
}
