//! The record of changes by the control listener.
//!
//! Changes take the same paths as the operator's own. Entries of lists go into files, as `shoal access` writes them. A
//! ban goes into its file, and so into the table of networks. A drain and a pause are policies that refuse announces. All changes
//! run on a separate thread, one after another, because a file system can hang. Each is recorded before it is made.

use axum::http::StatusCode;
use serde_json::Value;

use super::Control;
use super::auth::Caller;
use super::problem::Problem;
use shoal_runtime::lists;

/// Records a change and makes it. Also records a failure.
pub(super) async fn change<T>(
    control: &Control,
    caller: &Caller,
    change: &'static str,
    mut details: Value,
    make: impl Future<Output = Result<T, Problem>>,
) -> Result<T, Problem> {
    record(control, caller, change, &details).await?;
    let made = make.await;
    if let Err(problem) = &made {
        details["failed"] = problem.error.clone().into();
        record(control, caller, change, &details).await?;
    }
    made
}

/// Records a change before it is made, in the log and in the audit file. If the file cannot be written, the change must
/// not be made.
pub(super) async fn record(
    control: &Control,
    caller: &Caller,
    change: &'static str,
    details: &Value,
) -> Result<(), Problem> {
    let by = caller.author();
    if let Some(file) = control.sources.live.latest().policy.config().access.audit_file.clone() {
        let (author, details) = (caller.author(), details.clone());
        let written = tokio::task::spawn_blocking(move || {
            lists::append_audit(&file, &author, change, &details)
                .map_err(|error| format!("access.audit_file {} cannot be written: {error}", file.display()))
        });
        let written = written.await.unwrap_or_else(|error| Err(error.to_string()));
        written.map_err(|error| {
            let error = format!("{error}, so nothing was changed");
            Problem::new(StatusCode::INTERNAL_SERVER_ERROR, error)
        })?;
    }
    tracing::info!(%by, change, %details, "a change by the control listener");
    Ok(())
}
