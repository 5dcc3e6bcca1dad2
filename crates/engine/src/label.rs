//! Enums whose variants are the label values of metrics.

/// Defines an enum with `ALL` variants in order and the `name` of each, so that the counters and their exporter
/// need no lists of their own.
macro_rules! labels {
    (
        $(#[$meta:meta])*
        pub enum $Name:ident { $( $(#[$variant_meta:meta])* $Variant:ident = $label:literal, )+ }
    ) => {
        $(#[$meta])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub enum $Name { $( $(#[$variant_meta])* $Variant, )+ }

        impl $Name {
            /// Every variant, in order.
            pub const ALL: [Self; [$(Self::$Variant),+].len()] = [$(Self::$Variant),+];

            /// Returns the label that metrics use for it.
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self { $( Self::$Variant => $label, )+ }
            }

            /// Returns its index in `ALL`.
            #[must_use]
            pub const fn index(self) -> usize {
                self as usize
            }
        }
    };
}

pub(crate) use labels;
