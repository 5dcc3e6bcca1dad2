//! The parameters of requests. Their faults are refused like all others.

use axum::extract::FromRequestParts;
use axum::http::StatusCode;
use axum::http::request::Parts;
use serde::de::DeserializeOwned;

use super::problem::Problem;

/// The parameters after the question mark.
#[derive(Clone, Copy, Debug)]
pub(super) struct Query<T>(pub(super) T);

/// The parameters in the path.
#[derive(Clone, Copy, Debug)]
pub(super) struct Path<T>(pub(super) T);

impl<S: Send + Sync, T: DeserializeOwned + Send> FromRequestParts<S> for Query<T> {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Problem> {
        let read = axum::extract::Query::from_request_parts(parts, state).await;
        read.map(|query| Self(query.0)).map_err(|error| refusal(&error.body_text()))
    }
}

impl<S: Send + Sync, T: DeserializeOwned + Send> FromRequestParts<S> for Path<T> {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Problem> {
        let read = axum::extract::Path::from_request_parts(parts, state).await;
        read.map(|path| Self(path.0)).map_err(|error| refusal(&error.body_text()))
    }
}

fn refusal(fault: &str) -> Problem {
    Problem::new(StatusCode::BAD_REQUEST, format!("the parameters are not as they must be: {fault}"))
}
