//! Label selectors, as text (`app in (a,b),!canary`) and as objects (`matchLabels`).

use std::{collections::BTreeSet, fmt};

use drydock_schema::FieldError;
use serde_json::Value;

use crate::{json, names, selector::SelectorError};

/// How a label is compared.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Operator {
    /// The value is one of these.
    In,
    /// The label is missing, or its value is none of these.
    NotIn,
    /// As [`Operator::In`] with one value.
    Equals,
    /// As [`Operator::NotIn`] with one value.
    NotEquals,
    /// The label is there.
    Exists,
    /// The label is missing.
    DoesNotExist,
    /// The value is a whole number above this.
    GreaterThan,
    /// The value is a whole number below this.
    LessThan,
}

/// One comparison of a label.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Requirement {
    /// The label.
    pub key: String,
    /// How it is compared.
    pub operator: Operator,
    /// With what; sorted.
    pub values: BTreeSet<String>,
}

/// All of its requirements must hold.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct LabelSelector {
    /// The comparisons, by key.
    pub requirements: Vec<Requirement>,
}

impl LabelSelector {
    /// Reads the text form.
    ///
    /// # Errors
    /// The text is no selector.
    pub fn parse(text: &str) -> Result<Self, SelectorError> {
        let mut requirements = Parser { tokens: tokens(text), position: 0 }.selector()?;
        requirements.sort_by(|a, b| a.key.cmp(&b.key));
        Ok(Self { requirements })
    }

    /// Reads a `LabelSelector` object. A missing one selects nothing, an empty one everything.
    #[must_use]
    pub fn from_object(object: Option<&Value>) -> Option<Self> {
        let object = object.filter(|object| object.is_object())?;
        let mut requirements = Vec::new();
        for (key, value) in json::map(object, "matchLabels").into_iter().flatten() {
            let values = [value.as_str().unwrap_or_default().to_owned()].into();
            requirements.push(Requirement { key: key.clone(), operator: Operator::In, values });
        }
        for expression in json::list(object, "matchExpressions") {
            let operator = match json::text(expression, "operator") {
                "In" => Operator::In,
                "NotIn" => Operator::NotIn,
                "Exists" => Operator::Exists,
                "DoesNotExist" => Operator::DoesNotExist,
                _ => return None,
            };
            let values = json::list(expression, "values").iter().filter_map(Value::as_str).map(str::to_owned);
            let key = json::text(expression, "key").to_owned();
            requirements.push(Requirement { key, operator, values: values.collect() });
        }
        requirements.sort_by(|a, b| a.key.cmp(&b.key));
        Some(Self { requirements })
    }

    /// Everything matches.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.requirements.is_empty()
    }

    /// Whether labels, looked up by key, match.
    pub fn matches<'a>(&self, lookup: impl Fn(&str) -> Option<&'a str>) -> bool {
        self.requirements.iter().all(|requirement| requirement.matches(lookup(&requirement.key)))
    }
}

impl Requirement {
    fn matches(&self, value: Option<&str>) -> bool {
        let number = |text: &str| text.parse::<i64>().ok();
        let bound = || self.values.first().and_then(|value| number(value));
        match self.operator {
            Operator::In | Operator::Equals => value.is_some_and(|value| self.values.contains(value)),
            Operator::NotIn | Operator::NotEquals => value.is_none_or(|value| !self.values.contains(value)),
            Operator::Exists => value.is_some(),
            Operator::DoesNotExist => value.is_none(),
            Operator::GreaterThan => value.and_then(number).zip(bound()).is_some_and(|(a, b)| a > b),
            Operator::LessThan => value.and_then(number).zip(bound()).is_some_and(|(a, b)| a < b),
        }
    }
}

impl fmt::Display for LabelSelector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, requirement) in self.requirements.iter().enumerate() {
            if index > 0 {
                f.write_str(",")?;
            }
            write!(f, "{requirement}")?;
        }
        Ok(())
    }
}

impl fmt::Display for Requirement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let values = self.values.iter().map(String::as_str).collect::<Vec<_>>().join(",");
        let key = &self.key;
        match self.operator {
            Operator::In => write!(f, "{key} in ({values})"),
            Operator::NotIn => write!(f, "{key} notin ({values})"),
            Operator::Equals => write!(f, "{key}={values}"),
            Operator::NotEquals => write!(f, "{key}!={values}"),
            Operator::Exists => write!(f, "{key}"),
            Operator::DoesNotExist => write!(f, "!{key}"),
            Operator::GreaterThan => write!(f, "{key}>{values}"),
            Operator::LessThan => write!(f, "{key}<{values}"),
        }
    }
}

/// A `LabelSelector` object in the text form of the scale subresource and of `kubectl get -o wide`.
/// A selector for one value is shown as `key=value`.
#[must_use]
pub fn text_of(object: Option<&Value>) -> Option<String> {
    let mut selector = LabelSelector::from_object(object)?;
    let expressions = object.map(|object| json::list(object, "matchExpressions")).unwrap_or_default();
    for requirement in &mut selector.requirements {
        let from_expression =
            expressions.iter().any(|expression| json::text(expression, "key") == requirement.key);
        if requirement.operator == Operator::In && requirement.values.len() == 1 && !from_expression {
            requirement.operator = Operator::Equals;
        }
    }
    Some(selector.to_string())
}

/// `Name`s include keywords; which they are depends on where they stand.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Token {
    Name(String),
    Symbol(&'static str),
    Wrong(String),
    End,
}

impl Token {
    fn text(&self) -> &str {
        match self {
            Self::Name(text) | Self::Wrong(text) => text,
            Self::Symbol(text) => text,
            Self::End => "",
        }
    }
}

const SYMBOLS: &[&str] = &["!=", "==", "!", "=", ">", "<", "(", ")", ","];

fn is_symbol(character: char) -> bool {
    "=!(),><".contains(character)
}

fn tokens(text: &str) -> Vec<Token> {
    let mut tokens = Vec::new();
    let mut rest = text;
    loop {
        rest = rest.trim_start_matches([' ', '\t', '\r', '\n']);
        let Some(first) = rest.chars().next() else {
            tokens.push(Token::End);
            return tokens;
        };
        if is_symbol(first) {
            match SYMBOLS.iter().find(|symbol| rest.starts_with(**symbol)) {
                Some(symbol) => {
                    tokens.push(Token::Symbol(symbol));
                    rest = &rest[symbol.len()..];
                }
                None => {
                    tokens.push(Token::Wrong(format!("error expected: keyword found '{first}'")));
                    rest = &rest[first.len_utf8()..];
                }
            }
            continue;
        }
        let end = rest
            .find(|c: char| is_symbol(c) || c == ' ' || c == '\t' || c == '\r' || c == '\n')
            .unwrap_or(rest.len());
        tokens.push(Token::Name(rest[..end].to_owned()));
        rest = &rest[end..];
    }
}

struct Parser {
    tokens: Vec<Token>,
    position: usize,
}

impl Parser {
    fn peek(&self) -> Token {
        self.tokens.get(self.position).cloned().unwrap_or(Token::End)
    }

    fn next(&mut self) -> Token {
        let token = self.peek();
        self.position += 1;
        token
    }

    fn selector(&mut self) -> Result<Vec<Requirement>, SelectorError> {
        let mut requirements = Vec::new();
        loop {
            match self.peek() {
                Token::Name(_) | Token::Symbol("!") => {
                    let requirement = self
                        .requirement()
                        .map_err(|error| SelectorError(format!("unable to parse requirement: {error}")))?;
                    requirements.push(requirement);
                    match self.next() {
                        Token::End => return Ok(requirements),
                        Token::Symbol(",") => {
                            let after = self.peek();
                            if !matches!(after, Token::Name(_) | Token::Symbol("!")) {
                                return Err(found(&after, ", expected: identifier after ','"));
                            }
                        }
                        other => return Err(found(&other, ", expected: ',' or 'end of string'")),
                    }
                }
                Token::End => return Ok(requirements),
                other => return Err(found(&other, ", expected: !, identifier, or 'end of string'")),
            }
        }
    }

    fn requirement(&mut self) -> Result<Requirement, SelectorError> {
        let mut token = self.next();
        let absent = token == Token::Symbol("!");
        if absent {
            token = self.next();
        }
        let Token::Name(key) = token else { return Err(found(&token, ", expected: identifier")) };
        let wrong = names::qualified_name(&key);
        if !wrong.is_empty() {
            return Err(SelectorError(FieldError::invalid("<nil>", key, wrong.join("; ")).to_string()));
        }
        if matches!(self.peek(), Token::End | Token::Symbol(",")) || absent {
            let operator = if absent { Operator::DoesNotExist } else { Operator::Exists };
            return Ok(Requirement { key, operator, values: BTreeSet::new() });
        }
        let operator = self.operator()?;
        let values = match operator {
            Operator::In | Operator::NotIn => self.values()?,
            _ => self.value()?,
        };
        self.check(key, operator, values)
    }

    fn check(
        &self,
        key: String,
        operator: Operator,
        values: BTreeSet<String>,
    ) -> Result<Requirement, SelectorError> {
        let mut errors = Vec::new();
        for (index, value) in values.iter().enumerate() {
            let ordered = matches!(operator, Operator::GreaterThan | Operator::LessThan);
            if ordered && value.parse::<i64>().is_err() {
                errors.push(FieldError::invalid(
                    format!("values[{index}]"),
                    value.as_str(),
                    "for 'Gt', 'Lt' operators, the value must be an integer",
                ));
            }
        }
        for (index, value) in values.iter().enumerate() {
            let wrong = names::label_value(value);
            if !wrong.is_empty() {
                let path = format!("values[{index}][{key}]");
                errors.push(FieldError::invalid(path, value.as_str(), wrong.join("; ")));
            }
        }
        match errors.as_slice() {
            [] => Ok(Requirement { key, operator, values }),
            [one] => Err(SelectorError(one.to_string())),
            many => {
                let many: Vec<_> = many.iter().map(ToString::to_string).collect();
                Err(SelectorError(format!("[{}]", many.join(", "))))
            }
        }
    }

    fn operator(&mut self) -> Result<Operator, SelectorError> {
        let token = self.next();
        Ok(match token.text() {
            "in" => Operator::In,
            "notin" => Operator::NotIn,
            "=" | "==" => Operator::Equals,
            "!=" => Operator::NotEquals,
            ">" => Operator::GreaterThan,
            "<" => Operator::LessThan,
            _ => return Err(found(&token, ", expected: in, notin, =, ==, !=, gt, lt")),
        })
    }

    fn value(&mut self) -> Result<BTreeSet<String>, SelectorError> {
        if matches!(self.peek(), Token::End | Token::Symbol(",")) {
            return Ok([String::new()].into());
        }
        match self.next() {
            Token::Name(value) => Ok([value].into()),
            other => Err(found(&other, ", expected: identifier")),
        }
    }

    fn values(&mut self) -> Result<BTreeSet<String>, SelectorError> {
        let open = self.next();
        if open != Token::Symbol("(") {
            return Err(found(&open, " expected: '('"));
        }
        let first = self.peek();
        if !matches!(first, Token::Name(_) | Token::Symbol("," | ")")) {
            return Err(found(&first, ", expected: ',', ')' or identifier"));
        }
        let mut values = BTreeSet::new();
        let mut expect_value = true;
        loop {
            match self.next() {
                Token::Name(value) if expect_value => {
                    values.insert(value);
                    expect_value = false;
                }
                Token::Symbol(",") => {
                    if expect_value {
                        values.insert(String::new());
                    }
                    expect_value = true;
                }
                Token::Symbol(")") => {
                    if expect_value {
                        values.insert(String::new());
                    }
                    return Ok(values);
                }
                other if expect_value => return Err(found(&other, ", expected: ',', or identifier")),
                other => return Err(found(&other, ", expected: ',' or ')'")),
            }
        }
    }
}

fn found(token: &Token, expected: &str) -> SelectorError {
    SelectorError(format!("found '{}'{expected}", token.text()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(text: &str, labels: &[(&str, &str)], expected: Result<bool, &str>) {
        let answer = LabelSelector::parse(text)
            .map(|selector| {
                selector
                    .matches(|key| labels.iter().find(|(label, _)| *label == key).map(|(_, value)| *value))
            })
            .map_err(|error| error.to_string());
        assert_eq!(answer, expected.map_err(str::to_owned), "{text}");
    }

    #[test]
    fn labels_are_compared() {
        let labels = &[("app", "web"), ("tier", "3"), ("empty", "")];
        for (text, expected) in [
            ("", true),
            ("app=web", true),
            ("app==web,tier!=3", false),
            ("app in (web, db)", true),
            ("app notin (web)", false),
            ("missing notin (x)", true),
            ("app", true),
            ("!app", false),
            ("! missing", true),
            ("tier>2", true),
            ("tier<3", false),
            ("empty=", true),
            ("empty in ()", true),
            ("empty in (,x)", true),
        ] {
            check(text, labels, Ok(expected));
        }
    }

    #[test]
    fn what_is_no_selector_is_said() {
        check(
            "app web",
            &[],
            Err("unable to parse requirement: found 'web', expected: in, notin, =, ==, !=, gt, lt"),
        );
        check("=web", &[], Err("found '=', expected: !, identifier, or 'end of string'"));
        check("app,", &[], Err("found '', expected: identifier after ','"));
        check("app in web", &[], Err("unable to parse requirement: found 'web' expected: '('"));
    }

    #[test]
    fn a_selector_is_written_as_it_is_read() {
        for text in ["a=b", "a in (b,c),d!=e,!f,g", "x notin (y)"] {
            let selector = LabelSelector::parse(text).expect("a selector");
            assert_eq!(LabelSelector::parse(&selector.to_string()).expect("a selector"), selector, "{text}");
        }
    }
}
