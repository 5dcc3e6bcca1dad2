//! The macro that turns a declaration of keys into everything that is made of them.

use crate::value::Slot;

/// A section of the file, bound to a [`Config`](crate::Config).
pub(crate) struct Section<'c> {
    /// Its name, as in `[name]`.
    pub(crate) name: &'static str,
    /// Its documentation, a line each.
    pub(crate) docs: &'static [&'static str],
    /// Its keys in the order of declaration.
    pub(crate) keys: Vec<Key<'c>>,
}

/// A key, bound to its field of a [`Config`](crate::Config).
pub(crate) struct Key<'c> {
    /// Its name within the section.
    pub(crate) name: &'static str,
    /// Its documentation, a line each.
    pub(crate) docs: &'static [&'static str],
    /// The field.
    pub(crate) slot: Box<dyn Slot + 'c>,
}

/// Declares sections and keys:
///
/// ```text
/// /// What the section is about.
/// section udp: Udp {
///     /// What the key means.
///     key: Type = default, in least..=most;
/// }
/// ```
///
/// From that come a struct for each section with its `Default`, the struct `Config` of all sections, and the
/// function `sections`, which binds every key to its field.
macro_rules! settings {
    ($(
        $(#[doc = $section_doc:literal])+
        section $section:ident: $Section:ident {
            $(
                $(#[doc = $doc:literal])+
                $key:ident: $Type:ty = $default:expr $(, in $range:expr)?;
            )+
        }
    )+) => {
        $(
            $(#[doc = $section_doc])+
            #[derive(Clone, Debug, PartialEq)]
            pub struct $Section {
                $($(#[doc = $doc])+ pub $key: $Type,)+
            }

            impl Default for $Section {
                fn default() -> Self {
                    Self { $($key: $default,)+ }
                }
            }
        )+

        /// The whole configuration, a field for each section.
        #[derive(Clone, Debug, Default, PartialEq)]
        pub struct Config {
            $($(#[doc = $section_doc])+ pub $section: $Section,)+
        }

        /// Every key in the order of declaration, bound to its field of `config`.
        pub(crate) fn sections(config: &mut Config) -> Vec<$crate::declare::Section<'_>> {
            vec![$(
                $crate::declare::Section {
                    name: stringify!($section),
                    docs: &[$($section_doc),+],
                    keys: vec![$(
                        $crate::declare::Key {
                            name: stringify!($key),
                            docs: &[$($doc),+],
                            slot: Box::new($crate::value::Ranged {
                                field: &mut config.$section.$key,
                                range: $crate::declare::optional!($($range)?),
                            }),
                        },
                    )+],
                },
            )+]
        }
    };
}

/// `Some` of what is there, or `None`.
macro_rules! optional {
    () => {
        None
    };
    ($expression:expr) => {
        Some($expression)
    };
}

pub(crate) use {optional, settings};
