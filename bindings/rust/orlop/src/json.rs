//! JSON values: configurations out, facts and events in.
use crate::{Error, Result};
use std::fmt;

/// A JSON value. Members of an object keep their order.
///
/// ```
/// let value: orlop::Value = r#"{"name": "llama", "layers": [1, 2]}"#.parse()?;
/// assert_eq!(value["name"].as_str(), Some("llama"));
/// assert_eq!(value["layers"][1].as_f64(), Some(2.0));
/// assert_eq!(value["nothing"], orlop::Value::Null);
/// # Ok::<(), orlop::Error>(())
/// ```
#[derive(Clone, PartialEq, Debug, Default)]
pub enum Value {
    /// null
    #[default]
    Null,
    /// true, false
    Bool(bool),
    /// A number without fraction that fits
    Int(i64),
    /// Any other number
    Float(f64),
    /// A string
    String(String),
    /// An array
    Array(Vec<Value>),
    /// An object
    Object(Vec<(String, Value)>),
}

impl Value {
    /// The text of a string.
    pub fn as_str(&self) -> Option<&str> {
        match self {
            Value::String(s) => Some(s),
            _ => None,
        }
    }

    /// A number.
    pub fn as_f64(&self) -> Option<f64> {
        match *self {
            Value::Int(i) => Some(i as f64),
            Value::Float(f) => Some(f),
            _ => None,
        }
    }

    /// A whole number.
    pub fn as_i64(&self) -> Option<i64> {
        match *self {
            Value::Int(i) => Some(i),
            _ => None,
        }
    }

    /// A truth value.
    pub fn as_bool(&self) -> Option<bool> {
        match *self {
            Value::Bool(b) => Some(b),
            _ => None,
        }
    }

    /// The elements of an array; of anything else none.
    pub fn items(&self) -> &[Value] {
        match self {
            Value::Array(items) => items,
            _ => &[],
        }
    }

    /// The members of an object; of anything else none.
    pub fn members(&self) -> &[(String, Value)] {
        match self {
            Value::Object(members) => members,
            _ => &[],
        }
    }

    /// A member of an object.
    pub fn get(&self, name: &str) -> Option<&Value> {
        self.members().iter().rev().find(|(key, _)| key == name).map(|(_, value)| value)
    }
}

static NULL: Value = Value::Null;

impl std::ops::Index<&str> for Value {
    type Output = Value;
    /// The member of that name, or null.
    fn index(&self, name: &str) -> &Value {
        self.get(name).unwrap_or(&NULL)
    }
}

impl std::ops::Index<usize> for Value {
    type Output = Value;
    /// The element, or null.
    fn index(&self, i: usize) -> &Value {
        self.items().get(i).unwrap_or(&NULL)
    }
}

macro_rules! from {
    ($($kind:ty => |$v:ident| $make:expr;)*) => {$(
        impl From<$kind> for Value {
            fn from($v: $kind) -> Value { $make }
        }
    )*};
}
from! {
    bool => |v| Value::Bool(v);
    i32 => |v| Value::Int(v.into());
    u32 => |v| Value::Int(v.into());
    i64 => |v| Value::Int(v);
    u64 => |v| i64::try_from(v).map_or(Value::Float(v as f64), Value::Int);
    usize => |v| Value::from(v as u64);
    f64 => |v| Value::Float(v);
    &str => |v| Value::String(v.into());
    String => |v| Value::String(v);
    &String => |v| Value::String(v.clone());
    Vec<Value> => |v| Value::Array(v);
}

fn write_string(f: &mut fmt::Formatter<'_>, text: &str) -> fmt::Result {
    f.write_str("\"")?;
    for c in text.chars() {
        match c {
            '"' | '\\' => write!(f, "\\{c}")?,
            c if (c as u32) < 0x20 => write!(f, "\\u{:04x}", c as u32)?,
            c => write!(f, "{c}")?,
        }
    }
    f.write_str("\"")
}

impl fmt::Display for Value {
    /// JSON without white space. Numbers that JSON has no word for are null.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Value::Null => f.write_str("null"),
            Value::Bool(b) => write!(f, "{b}"),
            Value::Int(i) => write!(f, "{i}"),
            Value::Float(v) if v.is_finite() => write!(f, "{v:?}"),
            Value::Float(_) => f.write_str("null"),
            Value::String(s) => write_string(f, s),
            Value::Array(items) => {
                for (i, item) in items.iter().enumerate() {
                    write!(f, "{}{item}", if i == 0 { "[" } else { "," })?;
                }
                f.write_str(if items.is_empty() { "[]" } else { "]" })
            }
            Value::Object(members) => {
                for (i, (key, value)) in members.iter().enumerate() {
                    f.write_str(if i == 0 { "{" } else { "," })?;
                    write_string(f, key)?;
                    write!(f, ":{value}")?;
                }
                f.write_str(if members.is_empty() { "{}" } else { "}" })
            }
        }
    }
}

impl std::str::FromStr for Value {
    type Err = Error;
    fn from_str(text: &str) -> Result<Value> {
        let mut parser = Parser { text, at: 0 };
        let value = parser.value(0)?;
        parser.space();
        if parser.at < text.len() {
            return Err(parser.wrong("the end"));
        }
        Ok(value)
    }
}

const MAX_DEPTH: u32 = 200;

struct Parser<'a> {
    text: &'a str,
    at: usize,
}

impl Parser<'_> {
    fn wrong(&self, wanted: &str) -> Error {
        Error::BadFormat(format!("JSON, byte {}: {wanted} was expected", self.at))
    }

    fn peek(&self) -> u8 {
        self.text.as_bytes().get(self.at).copied().unwrap_or(0)
    }

    fn space(&mut self) {
        while matches!(self.peek(), b' ' | b'\t' | b'\n' | b'\r') {
            self.at += 1;
        }
    }

    fn take(&mut self, word: &str) -> bool {
        let found = self.text[self.at..].starts_with(word);
        if found {
            self.at += word.len();
        }
        found
    }

    fn expect(&mut self, word: &str) -> Result<()> {
        self.space();
        if self.take(word) {
            Ok(())
        } else {
            Err(self.wrong(word))
        }
    }

    fn value(&mut self, depth: u32) -> Result<Value> {
        if depth > MAX_DEPTH {
            return Err(self.wrong("less nesting"));
        }
        self.space();
        match self.peek() {
            b'{' => self.object(depth),
            b'[' => self.array(depth),
            b'"' => self.string().map(Value::String),
            b'-' | b'0'..=b'9' => self.number(),
            _ if self.take("null") => Ok(Value::Null),
            _ if self.take("true") => Ok(Value::Bool(true)),
            _ if self.take("false") => Ok(Value::Bool(false)),
            _ => Err(self.wrong("a value")),
        }
    }

    fn object(&mut self, depth: u32) -> Result<Value> {
        self.at += 1;
        let mut members = Vec::new();
        self.space();
        if self.take("}") {
            return Ok(Value::Object(members));
        }
        loop {
            self.space();
            if self.peek() != b'"' {
                return Err(self.wrong("a name"));
            }
            let name = self.string()?;
            self.expect(":")?;
            members.push((name, self.value(depth + 1)?));
            self.space();
            if self.take(",") {
                continue;
            }
            self.expect("}")?;
            return Ok(Value::Object(members));
        }
    }

    fn array(&mut self, depth: u32) -> Result<Value> {
        self.at += 1;
        let mut items = Vec::new();
        self.space();
        if self.take("]") {
            return Ok(Value::Array(items));
        }
        loop {
            items.push(self.value(depth + 1)?);
            self.space();
            if self.take(",") {
                continue;
            }
            self.expect("]")?;
            return Ok(Value::Array(items));
        }
    }

    /// One digit or more.
    fn digits(&mut self) -> Result<()> {
        if !self.peek().is_ascii_digit() {
            return Err(self.wrong("a digit"));
        }
        while self.peek().is_ascii_digit() {
            self.at += 1;
        }
        Ok(())
    }

    /// RFC 8259: no leading zero or plus, digits on both sides of the point; and what a double can hold.
    fn number(&mut self) -> Result<Value> {
        let start = self.at;
        self.take("-");
        if !self.take("0") {
            self.digits()?;
        }
        if self.take(".") {
            self.digits()?;
        }
        if self.take("e") || self.take("E") {
            let _ = self.take("+") || self.take("-");
            self.digits()?;
        }
        let text = &self.text[start..self.at];
        if let Ok(i) = text.parse() {
            return Ok(Value::Int(i));
        }
        match text.parse::<f64>() {
            Ok(number) if number.is_finite() => Ok(Value::Float(number)),
            _ => Err(self.wrong("a number of 64 bits")),
        }
    }

    fn string(&mut self) -> Result<String> {
        self.at += 1;
        let mut out = String::new();
        loop {
            let rest = &self.text[self.at..];
            let special = |c: char| c == '"' || c == '\\' || c < ' ';
            let stop = rest.find(special).ok_or_else(|| self.wrong("the string's end"))?;
            out.push_str(&rest[..stop]);
            self.at += stop + 1;
            match rest.as_bytes()[stop] {
                b'"' => return Ok(out),
                b'\\' => {}
                _ => return Err(self.wrong("an escape for a control character")),
            }
            let escape = self.peek();
            self.at += 1;
            out.push(match escape {
                b'"' | b'\\' | b'/' => escape as char,
                b'b' => '\u{8}',
                b'f' => '\u{c}',
                b'n' => '\n',
                b'r' => '\r',
                b't' => '\t',
                b'u' => self.code_point()?,
                _ => return Err(self.wrong("an escape")),
            });
        }
    }

    fn hex(&mut self) -> Result<u32> {
        let digits = self.text.get(self.at..self.at + 4).ok_or_else(|| self.wrong("four digits"))?;
        if !digits.bytes().all(|b| b.is_ascii_hexdigit()) {
            return Err(self.wrong("four digits"));
        }
        let unit = u32::from_str_radix(digits, 16).map_err(|_| self.wrong("four digits"))?;
        self.at += 4;
        Ok(unit)
    }

    /// Half of a surrogate pair alone becomes U+FFFD.
    fn code_point(&mut self) -> Result<char> {
        let unit = self.hex()?;
        if (0xD800..0xDC00).contains(&unit) && self.text[self.at..].starts_with("\\u") {
            let before = self.at;
            self.at += 2;
            let low = self.hex()?;
            if (0xDC00..0xE000).contains(&low) {
                let code = 0x10000 + ((unit - 0xD800) << 10) + (low - 0xDC00);
                return Ok(char::from_u32(code).unwrap_or(char::REPLACEMENT_CHARACTER));
            }
            self.at = before;
        }
        Ok(char::from_u32(unit).unwrap_or(char::REPLACEMENT_CHARACTER))
    }
}
