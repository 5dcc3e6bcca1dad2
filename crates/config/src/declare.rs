//! The macro that turns the declaration of the keys into structs, defaults and metadata.

use crate::reload::Differences;
use crate::value::Slot;

/// A section of the file, bound to its part of a [`Config`](crate::Config).
pub(crate) struct Section<'c> {
    /// The name, as in `[name]`.
    pub(crate) name: &'static str,
    /// The documentation, one entry per line.
    pub(crate) docs: &'static [&'static str],
    /// The keys in the order of declaration.
    pub(crate) keys: Vec<Key<'c>>,
}

/// A key, bound to its field of a [`Config`](crate::Config).
pub(crate) struct Key<'c> {
    /// The name within the section.
    pub(crate) name: &'static str,
    /// The documentation, one entry per line.
    pub(crate) docs: &'static [&'static str],
    /// When a change of the key takes effect.
    pub(crate) applies: Applies,
    /// Whether most operators decide about it, so that the short file has it.
    pub(crate) is_essential: bool,
    /// The field.
    pub(crate) slot: Box<dyn Slot + 'c>,
}

/// When a change of a key takes effect in a running tracker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Applies {
    /// When the configuration is read again.
    Reload,
    /// After a restart.
    Restart,
}

/// A section, as [`settings`] declares it.
pub(crate) trait Declared {
    /// Returns every key in the order of declaration, bound to its field.
    fn section(&mut self) -> Section<'_>;

    /// Compares the keys with those of the `running` configuration. Keys whose change needs a restart get their running
    /// values back.
    fn compare(&mut self, running: &Self, differences: &mut Differences);
}

/// Declares sections and keys:
///
/// ```text
/// /// What the section is about.
/// section udp: UdpConfig {
///     /// What the key means.
///     key: Type = default, in least..=most => Reload;
/// }
/// ```
///
/// A section within another one has its full name after an equals sign: `section xdp = "udp.xdp": XdpConfig`.
///
/// A variant of [`Applies`] after the arrow says when a change takes effect. `, essential` after it puts the key into the
/// short file, with the first sentence of its documentation.
///
/// This generates a struct for each section, with `Default` and [`Declared`].
macro_rules! settings {
    ($(
        $(#[doc = $section_doc:literal])+
        section $section:ident $(= $name:literal)?: $Section:ident {
            $(
                $(#[doc = $doc:literal])+
                $key:ident: $Type:ty = $default:expr $(, in $range:expr)? => $applies:ident $(, $essential:ident)?;
            )+
        }
    )+) => {$(
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

        impl $crate::declare::Declared for $Section {
            fn section(&mut self) -> $crate::declare::Section<'_> {
                $crate::declare::Section {
                    name: $crate::declare::section_name!([$section $(= $name)?]),
                    docs: &[$($section_doc),+],
                    keys: vec![$(
                        $crate::declare::Key {
                            name: stringify!($key),
                            docs: &[$($doc),+],
                            applies: $crate::declare::Applies::$applies,
                            is_essential: $crate::declare::is_essential!($($essential)?),
                            slot: Box::new($crate::value::Ranged {
                                field: &mut self.$key,
                                range: $crate::declare::optional!($($range)?),
                            }),
                        },
                    )+],
                }
            }

            fn compare(&mut self, running: &Self, differences: &mut $crate::reload::Differences) {
                $crate::declare::compare_keys!(
                    self, running, differences, [$section $(= $name)?], $($key $applies)+
                );
            }
        }
    )+};
}

/// Combines the sections into the whole configuration, in the order of the file.
///
/// This generates the struct `Config`, the function `sections`, which binds every key to its field, and the function
/// `compare`.
macro_rules! sections {
    ($($section:ident: $Section:ident,)+) => {
        /// The whole configuration, with one field for each section.
        #[derive(Clone, Debug, Default, PartialEq)]
        pub struct Config {
            $(
                #[doc = concat!("The section of [`", stringify!($Section), "`].")]
                pub $section: $Section,
            )+
        }

        /// Returns every key in the order of declaration, bound to its field of `config`.
        pub(crate) fn sections(config: &mut Config) -> Vec<$crate::declare::Section<'_>> {
            vec![$($crate::declare::Declared::section(&mut config.$section),)+]
        }

        /// Compares `config` with the `running` configuration. Keys whose change needs a restart get their running
        /// values back.
        pub(crate) fn compare(config: &mut Config, running: &Config) -> $crate::reload::Differences {
            let mut differences = $crate::reload::Differences::default();
            $($crate::declare::Declared::compare(&mut config.$section, &running.$section, &mut differences);)+
            differences
        }
    };
}

/// Expands to `Some(expression)`, or to `None` without an argument.
macro_rules! optional {
    () => {
        None
    };
    ($expression:expr) => {
        Some($expression)
    };
}

/// Expands to whether a key is marked as essential.
macro_rules! is_essential {
    () => {
        false
    };
    (essential) => {
        true
    };
}

/// Compares the keys of a section, whose name is in the form of `section_name`.
macro_rules! compare_keys {
    ($config:ident, $running:ident, $differences:ident, $name:tt, $($key:ident $applies:ident)+) => {$(
        if $config.$key != $running.$key {
            let name = concat!($crate::declare::section_name!($name), ".", stringify!($key));
            match $crate::declare::Applies::$applies {
                $crate::declare::Applies::Reload => $differences.applied.push(name),
                $crate::declare::Applies::Restart => {
                    $config.$key.clone_from(&$running.$key);
                    $differences.needs_restart.push(name);
                }
            }
        }
    )+};
}

/// Expands to the full name of a section.
macro_rules! section_name {
    ([$section:ident]) => {
        stringify!($section)
    };
    ([$section:ident = $name:literal]) => {
        $name
    };
}

pub(crate) use {compare_keys, is_essential, optional, section_name, sections, settings};
