//! All interleavings of the writer and a reader of a published value, as loom explores them. The source file is
//! compiled here once more, with the types of loom.

mod sync {
    pub(crate) use loom::sync::Mutex;
    pub(crate) use loom::sync::atomic::{AtomicU64, Ordering};
}

#[path = "../src/published.rs"]
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
                published.publish(Arc::new(1));
                published.publish(Arc::new(2));
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

/// Two readers do not keep each other from the value for long.
#[test]
fn readers_catch_up_with_each_other() {
    loom::model(|| {
        let published = Arc::new(Published::new(Arc::new(0)));
        let readers: Vec<_> = (0..2).map(|_| published.subscribe()).collect();
        published.publish(Arc::new(1));
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
