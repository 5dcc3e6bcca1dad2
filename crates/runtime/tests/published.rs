//! All interleavings of the writer and a reader of a published value, as loom explores them. The source file is
//! compiled here once more, with the types of loom.

mod sync {
    pub(crate) use loom::sync::Mutex;
    pub(crate) use loom::sync::atomic::{AtomicU64, Ordering};
}

#[path = "../src/published.rs"]
#[allow(unreachable_pub, reason = "the module of a library")]
mod published;

use std::sync::Arc;

use published::Published;

/// A reader sees values in order and none twice, and after the writer has ended it sees the last one.
#[test]
fn a_reader_misses_no_last_value_and_sees_none_twice() {
    loom::model(|| {
        let published = Arc::new(Published::new(Arc::new(0)));
        let mut reader = published.subscribe();
        let writer = {
            let published = Arc::clone(&published);
            loom::thread::spawn(move || {
                published.replace(|_| 1);
                published.replace(|_| 2);
            })
        };
        let mut seen = 0;
        for _ in 0..2 {
            if let Some(value) = reader.update() {
                assert!(*value > seen, "{value} after {seen}");
                seen = *value;
            }
        }
        writer.join().unwrap();
        let last = reader.update().map_or(seen, |value| *value);
        assert_eq!((last, *published.latest()), (2, 2));
        assert!(reader.update().is_none(), "it was seen");
    });
}

/// Two writers that change one part each lose nothing.
#[test]
fn writers_keep_what_the_other_one_has_published() {
    loom::model(|| {
        let published = Arc::new(Published::new(Arc::new((0, 0))));
        let writer = {
            let published = Arc::clone(&published);
            loom::thread::spawn(move || published.replace(|value| (value.0 + 1, value.1)))
        };
        published.replace(|value| (value.0, value.1 + 1));
        writer.join().unwrap();
        assert_eq!(*published.latest(), (1, 1));
    });
}

/// A version is adopted only when the reader has said so, and what it did before is seen then.
#[test]
fn a_version_is_adopted_after_its_reader_has_finished_with_the_old_one() {
    loom::model(|| {
        let published = Arc::new(Published::new(Arc::new(0)));
        let mut reader = published.subscribe();
        let work = Arc::new(sync::AtomicU64::new(0));
        let thread = {
            let work = Arc::clone(&work);
            loom::thread::spawn(move || {
                work.store(1, sync::Ordering::Relaxed);
                if reader.update().is_some() {
                    reader.acknowledge();
                }
                reader
            })
        };
        let version = published.replace(|_| 1);
        if published.is_adopted(version) {
            assert_eq!(work.load(sync::Ordering::Relaxed), 1, "the work with the old value is done");
        }
        let mut reader = thread.join().unwrap();
        reader.update();
        reader.acknowledge();
        assert!(published.is_adopted(version) && !published.is_adopted(version + 1));
        drop(reader);
        assert!(published.is_adopted(version + 1), "no reader is left");
    });
}

/// Two readers do not keep each other from the value for long.
#[test]
fn readers_catch_up_with_each_other() {
    loom::model(|| {
        let published = Arc::new(Published::new(Arc::new(0)));
        let readers: Vec<_> = (0..2).map(|_| published.subscribe()).collect();
        published.replace(|_| 1);
        let threads: Vec<_> = readers
            .into_iter()
            .map(|mut reader| {
                loom::thread::spawn(move || {
                    let value = reader.update();
                    (reader, value)
                })
            })
            .collect();
        for thread in threads {
            let (mut reader, value) = thread.join().unwrap();
            let value = value.or_else(|| reader.update());
            assert_eq!(value.as_deref(), Some(&1));
        }
    });
}
