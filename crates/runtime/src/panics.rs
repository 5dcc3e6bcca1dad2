//! Panics of code that runs beside the data path: their texts, and their conversion to errors.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// Returns the text of a panic.
pub fn text(panic: &(dyn Any + Send)) -> &str {
    let text = panic.downcast_ref::<&str>().copied();
    text.or_else(|| panic.downcast_ref::<String>().map(String::as_str)).unwrap_or("without a message")
}

/// Returns the outcome of reading a source. A panic becomes a fault of the source, so that the thread continues with
/// the others. After a panic of `read`, it must be possible to call it again.
pub(crate) fn caught<T>(read: impl FnOnce() -> Result<T, String>) -> Result<T, String> {
    catch_unwind(AssertUnwindSafe(read))
        .unwrap_or_else(|panic| Err(format!("a bug of this program, please report it: {}", text(&*panic))))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_panic_becomes_an_error_with_its_text() {
        assert_eq!(caught(|| Ok(1)), Ok(1));
        let fault = caught::<()>(|| panic!("out of {}", "bounds")).unwrap_err();
        assert_eq!(fault, "a bug of this program, please report it: out of bounds");
    }
}
