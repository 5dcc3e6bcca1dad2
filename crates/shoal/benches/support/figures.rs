//! The figures of a benchmark on standard output.

/// The figures, as they are measured.
pub(crate) struct Figures {
    pub(crate) json: bool,
}

impl Figures {
    pub(crate) fn print(&self, name: &str, value: f64, unit: &str) {
        if self.json {
            println!("{}", serde_json::json!({ "name": name, "value": value, "unit": unit }));
        } else {
            println!("{name:<44} {value:>12.2} {unit}");
        }
    }
}
