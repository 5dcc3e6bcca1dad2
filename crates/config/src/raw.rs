//! A value as somebody wrote it, before it means anything.
//!
//! A TOML value has a type of its own, a value from an environment variable is bare text. Both come to the parsers
//! of [`Value`](crate::value::Value) in this one shape, so that no type needs two parsers.

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
    /// Text without a type, from the environment: whatever the key wants it to be.
    Untyped(String),
    /// A TOML type that no key accepts: float, date, table.
    Foreign,
}

impl Raw {
    /// The TOML value without its place in the file.
    pub(crate) fn from_toml(value: &DeValue<'_>) -> Self {
        match value {
            DeValue::String(text) => Self::Text(text.to_string()),
            DeValue::Integer(integer) => {
                i128::from_str_radix(integer.as_str(), integer.radix()).map_or(Self::Foreign, Self::Integer)
            }
            DeValue::Boolean(boolean) => Self::Boolean(*boolean),
            DeValue::Array(items) => {
                Self::List(items.iter().map(|item| Self::from_toml(item.get_ref())).collect())
            }
            DeValue::Float(_) | DeValue::Datetime(_) | DeValue::Table(_) => Self::Foreign,
        }
    }

    /// The value as text, if it can be that.
    pub(crate) fn text(&self) -> Option<&str> {
        match self {
            Self::Text(text) | Self::Untyped(text) => Some(text),
            _ => None,
        }
    }

    /// The value as an integer, if it can be that.
    pub(crate) fn integer<T: TryFrom<i128>>(&self) -> Option<T> {
        let integer = match self {
            Self::Integer(integer) => *integer,
            Self::Untyped(text) => text.parse().ok()?,
            _ => return None,
        };
        T::try_from(integer).ok()
    }

    /// The value as a boolean, if it can be that.
    pub(crate) fn boolean(&self) -> Option<bool> {
        match self {
            Self::Boolean(boolean) => Some(*boolean),
            Self::Untyped(text) => text.parse().ok(),
            _ => None,
        }
    }

    /// The value as a list, if it can be that. Without types, commas separate the items.
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
