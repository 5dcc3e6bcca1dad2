//! A value as written in a file or the environment, before it is interpreted.
//!
//! A TOML value has a type, while a value from an environment variable is untyped text. Both reach the parsers of
//! [`Value`](crate::value::Value) in the same form, so no type needs two parsers.

use toml::de::DeValue;

/// A written value.
#[derive(Clone, Debug)]
pub(crate) enum Raw {
    /// A TOML string.
    Text(String),
    /// A TOML integer.
    Integer(i128),
    /// A TOML boolean.
    Boolean(bool),
    /// A TOML array.
    List(Vec<Raw>),
    /// Untyped text from the environment. The type of the key decides how it is parsed.
    Untyped(String),
    /// A TOML type that no key accepts: a float, a date or a table.
    Unsupported,
}

impl Raw {
    /// Converts a TOML value. The result does not include its position in the file.
    pub(crate) fn from_toml(value: &DeValue<'_>) -> Self {
        match value {
            DeValue::String(text) => Self::Text(text.to_string()),
            DeValue::Integer(integer) => i128::from_str_radix(integer.as_str(), integer.radix())
                .map_or(Self::Unsupported, Self::Integer),
            DeValue::Boolean(boolean) => Self::Boolean(*boolean),
            DeValue::Array(items) => {
                Self::List(items.iter().map(|item| Self::from_toml(item.get_ref())).collect())
            }
            DeValue::Float(_) | DeValue::Datetime(_) | DeValue::Table(_) => Self::Unsupported,
        }
    }

    /// Returns the value as text, if it can be text.
    pub(crate) fn text(&self) -> Option<&str> {
        match self {
            Self::Text(text) | Self::Untyped(text) => Some(text),
            _ => None,
        }
    }

    /// Returns the value as an integer, if it can be one.
    pub(crate) fn integer<T: TryFrom<i128>>(&self) -> Option<T> {
        let integer = match self {
            Self::Integer(integer) => *integer,
            Self::Untyped(text) => text.parse().ok()?,
            _ => return None,
        };
        T::try_from(integer).ok()
    }

    /// Returns the value as a boolean, if it can be one.
    pub(crate) fn boolean(&self) -> Option<bool> {
        match self {
            Self::Boolean(boolean) => Some(*boolean),
            Self::Untyped(text) => text.parse().ok(),
            _ => None,
        }
    }

    /// Returns the value as a list, if it can be one. Commas separate the items of untyped text.
    pub(crate) fn list(&self) -> Option<Vec<Self>> {
        match self {
            Self::List(items) => Some(items.clone()),
            Self::Untyped(text) if text.trim().is_empty() => Some(Vec::new()),
            Self::Untyped(text) => {
                Some(text.split(',').map(|item| Self::Untyped(item.trim().to_owned())).collect())
            }
            _ => None,
        }
    }
}
