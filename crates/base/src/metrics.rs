//! Counters of a worker, each declared once, with the name, help and labels of its metric.
//!
//! A worker owns its counters and is the only writer. An exporter on another thread adds up the counters of all
//! workers. So counting is a plain load and store, without the bus lock of an atomic addition.
//!
//! [`Histogram`] counts values by magnitude in the same way.
//!
//! [`counters!`] declares a set of counters, and [`labels!`] the values of a label. An exporter iterates over
//! [`Export::metrics`], so a new metric only takes its declaration and the line that counts.

mod histogram;

use core::sync::atomic::{AtomicU64, Ordering};

pub use histogram::{Histogram, HistogramCounts};

pub use crate::{counters, labels};

/// A number that one thread writes and other threads read.
#[derive(Debug, Default)]
pub struct Counter(AtomicU64);

impl Counter {
    /// Returns the number.
    #[inline]
    pub fn read(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }

    /// Adds one. Only the worker that owns the counter may call this; otherwise additions get lost.
    #[inline]
    pub fn increment(&self) {
        self.add(1);
    }

    /// Adds `count`, under the same condition as [`Self::increment`].
    #[inline]
    pub fn add(&self, count: u64) {
        self.0.store(self.read().wrapping_add(count), Ordering::Relaxed);
    }
}

/// A number that grows and shrinks, which is read and written as a whole. Any thread may write it.
#[derive(Debug, Default)]
pub struct Gauge(AtomicU64);

impl Gauge {
    /// Returns the number.
    pub fn read(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }

    /// Replaces the number.
    pub fn set(&self, number: u64) {
        self.0.store(number, Ordering::Relaxed);
    }

    /// Adds `count`. Unlike those to a [`Counter`], additions of several threads do not get lost.
    pub fn add(&self, count: u64) {
        self.0.fetch_add(count, Ordering::Relaxed);
    }
}

/// The values of a label. [`labels!`] implements it.
pub trait Label: Copy + 'static {
    /// Every value, in order.
    const VALUES: &'static [Self];

    /// Returns the text of the value.
    fn name(self) -> &'static str;

    /// Returns its index in [`Self::VALUES`].
    fn index(self) -> usize;
}

/// A counter for each value of a label.
#[derive(Debug)]
pub struct Labelled<L, const COUNT: usize> {
    counters: [Counter; COUNT],
    label: core::marker::PhantomData<L>,
}

impl<L: Label, const COUNT: usize> Labelled<L, COUNT> {
    /// Returns the counter of a value.
    #[inline]
    pub fn of(&self, value: L) -> &Counter {
        &self.counters[value.index()]
    }
}

impl<L: Label, const COUNT: usize> Default for Labelled<L, COUNT> {
    fn default() -> Self {
        Self { counters: core::array::from_fn(|_| Counter::default()), label: core::marker::PhantomData }
    }
}

/// The state of a metric at one time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Metric {
    /// The name, to which the exporter appends `_total`.
    pub name: &'static str,
    /// The lines of the help.
    pub help: &'static [&'static str],
    /// The name of the label, or `None` for a metric without labels.
    pub label: Option<&'static str>,
    /// The value of the label (empty without one) and the number for each series.
    pub series: Vec<(&'static str, u64)>,
}

/// A set of counters that an exporter can read.
pub trait Export {
    /// Returns all metrics of the set, in the order of their declaration.
    fn metrics(&self) -> Vec<Metric>;
}

/// Reads a counter, with or without labels, for [`counters!`].
pub trait Series {
    /// Returns the label value and the number for each series.
    fn series(&self) -> Vec<(&'static str, u64)>;
}

impl Series for Counter {
    fn series(&self) -> Vec<(&'static str, u64)> {
        vec![("", self.read())]
    }
}

impl<L: Label, const COUNT: usize> Series for Labelled<L, COUNT> {
    fn series(&self) -> Vec<(&'static str, u64)> {
        L::VALUES.iter().map(|&value| (value.name(), self.of(value).read())).collect()
    }
}

/// Returns the sums of the metrics of several workers.
pub fn sums<'e, E: Export + 'e>(mut workers: impl Iterator<Item = &'e E>) -> Vec<Metric> {
    let mut sums = workers.next().map_or_else(Vec::new, Export::metrics);
    for worker in workers {
        for (sum, metric) in sums.iter_mut().zip(worker.metrics()) {
            for ((_, total), (_, count)) in sum.series.iter_mut().zip(metric.series) {
                *total += count;
            }
        }
    }
    sums
}

/// Defines an enum whose variants are the values of a label, with `ALL` variants in order and the `name` of each.
#[macro_export]
macro_rules! labels {
    (
        $(#[$meta:meta])*
        $visibility:vis enum $Name:ident { $( $(#[$variant_meta:meta])* $Variant:ident = $label:literal, )+ }
    ) => {
        $(#[$meta])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        $visibility enum $Name { $( $(#[$variant_meta])* $Variant, )+ }

        impl $Name {
            /// Every variant, in order.
            $visibility const ALL: [Self; [$(Self::$Variant),+].len()] = [$(Self::$Variant),+];

            /// Returns the label that metrics use for it.
            $visibility const fn name(self) -> &'static str {
                match self { $( Self::$Variant => $label, )+ }
            }
        }

        impl $crate::metrics::Label for $Name {
            const VALUES: &'static [Self] = &Self::ALL;

            fn name(self) -> &'static str {
                Self::name(self)
            }

            fn index(self) -> usize {
                self as usize
            }
        }
    };
}

/// Defines a set of counters. The documentation of a field is the help of its metric, and the text after `=` its name.
/// `by label: Type` makes it a counter for each value of an enum of [`labels!`]. A field with a type in place of a name is
/// not exported.
///
/// ```
/// shoal_base::metrics::labels! {
///     /// The colour of a ball.
///     pub enum Colour {
///         /// Red.
///         Red = "red",
///         /// Blue.
///         Blue = "blue",
///     }
/// }
/// shoal_base::metrics::counters! {
///     /// The counters of a juggler.
///     pub struct Juggling {
///         /// Throws, by the colour of the ball.
///         pub throws = "juggling_throws", by colour: Colour;
///         /// Balls that fell to the ground.
///         pub drops = "juggling_drops";
///     }
/// }
/// let juggling = Juggling::default();
/// juggling.throws.of(Colour::Blue).increment();
/// let metrics = shoal_base::metrics::Export::metrics(&juggling);
/// assert_eq!(metrics[0].series, [("red", 0), ("blue", 1)]);
/// ```
#[macro_export]
macro_rules! counters {
    (
        $(#[$meta:meta])*
        $visibility:vis struct $Name:ident {
            $(
                $(#[doc = $help:literal])+
                $field_visibility:vis $field:ident $(: $Type:ty)? $(= $metric:literal $(, by $label:ident : $Label:ty)?)?;
            )+
        }
    ) => {
        $(#[$meta])*
        #[derive(Debug, Default)]
        // Two cache lines, because processors also prefetch the adjacent line: so workers do not slow each other down.
        #[repr(align(128))]
        $visibility struct $Name {
            $(
                $(#[doc = $help])+
                $field_visibility $field: $crate::metrics::counters!(@type $($Type)?; $($($Label)?)?),
            )+
        }

        impl $crate::metrics::Export for $Name {
            fn metrics(&self) -> ::std::vec::Vec<$crate::metrics::Metric> {
                let metrics = [$(
                    $crate::metrics::counters!(@metric self.$field, [$($help),+] $(, $metric $(, $label)?)?),
                )+];
                metrics.into_iter().flatten().collect()
            }
        }
    };
    (@type ;) => { $crate::metrics::Counter };
    (@type ; $Label:ty) => { $crate::metrics::Labelled<$Label, { <$Label as $crate::metrics::Label>::VALUES.len() }> };
    (@type $Type:ty;) => { $Type };
    (@metric $counter:expr, $help:tt) => { ::core::option::Option::None };
    (@metric $counter:expr, $help:tt, $metric:literal $(, $label:ident)?) => {
        ::core::option::Option::Some($crate::metrics::Metric {
            name: $metric,
            help: &$help,
            label: $crate::metrics::counters!(@label $($label)?),
            series: $crate::metrics::Series::series(&$counter),
        })
    };
    (@label) => { ::core::option::Option::None };
    (@label $label:ident) => { ::core::option::Option::Some(::core::stringify!($label)) };
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    labels! {
        enum Side {
            Left = "left",
            Right = "right",
        }
    }

    counters! {
        struct Doors {
            /// Doors that were opened,
            /// by side.
            opened = "doors_opened", by side: Side;
            /// Doors that were closed.
            closed = "doors_closed";
            /// Doors that there are.
            all: Gauge;
        }
    }

    #[test]
    fn metrics_of_workers_are_added_up() {
        let workers = [Arc::new(Doors::default()), Arc::default()];
        workers[0].opened.of(Side::Left).increment();
        workers[1].opened.of(Side::Left).add(2);
        workers[1].opened.of(Side::Right).add(5);
        workers[1].closed.add(7);
        workers[1].all.set(9);
        let [opened, closed] = &sums(workers.iter().map(|doors| &**doors))[..] else {
            panic!("two metrics are declared")
        };
        assert_eq!((opened.name, opened.label), ("doors_opened", Some("side")));
        assert_eq!(opened.help.concat(), " Doors that were opened, by side.");
        assert_eq!(opened.series, [("left", 3), ("right", 5)]);
        assert_eq!((closed.label, &closed.series[..]), (None, &[("", 7)][..]));
    }

    #[test]
    fn workers_do_not_share_cache_lines() {
        assert_eq!(align_of::<Doors>(), 128);
    }
}
