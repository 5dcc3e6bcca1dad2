//! The OpenAPI document, made from the descriptions of the endpoints. The program has the document only.

use utoipa::openapi::path::Operation;
use utoipa::openapi::response::ResponseBuilder;
use utoipa::openapi::schema::Schema;
use utoipa::openapi::security::{HttpAuthScheme, HttpBuilder, SecurityRequirement, SecurityScheme};
use utoipa::openapi::{Content, PathItem, Ref, RefOr};
use utoipa::{OpenApi, PartialSchema, ToSchema};

use super::super::problem::{JSON, ProblemBody};
use super::Document;
use crate::stats::Stats;

/// Returns the document, as it is checked in.
pub(crate) fn document() -> String {
    let mut text = Document::openapi().to_pretty_json().unwrap_or_default();
    text.push('\n');
    text
}

/// Adds the form in which tokens are shown.
pub(super) struct Tokens;

impl utoipa::Modify for Tokens {
    fn modify(&self, document: &mut utoipa::openapi::OpenApi) {
        let scheme = HttpBuilder::new()
            .scheme(HttpAuthScheme::Bearer)
            .description(Some(
                "A token of the role that the endpoint names: read or admin. Without configured tokens, endpoints of \
                 the role read need none, and those of the role admin are refused.",
            ))
            .build();
        if let Some(components) = &mut document.components {
            components.add_security_scheme("token", SecurityScheme::Http(scheme));
        }
    }
}

/// Adds names for the functions of generated clients: the method and the path.
pub(super) struct Names;

impl utoipa::Modify for Names {
    fn modify(&self, document: &mut utoipa::openapi::OpenApi) {
        for (path, item) in &mut document.paths.paths {
            let PathItem { get, put, post, delete, .. } = item;
            for (method, operation) in [("get", get), ("put", put), ("post", post), ("delete", delete)] {
                let words = path.split(|c: char| !c.is_ascii_alphanumeric()).filter(|word| !word.is_empty());
                let name = words.fold(method.to_owned(), |name, word| name + "_" + word);
                if let Some(operation) = operation {
                    operation.operation_id = Some(name);
                }
            }
        }
    }
}

/// Adds the refusals of every endpoint with a token.
pub(super) struct Refusals;

impl utoipa::Modify for Refusals {
    fn modify(&self, document: &mut utoipa::openapi::OpenApi) {
        for item in document.paths.paths.values_mut() {
            let PathItem { get, put, post, delete, .. } = item;
            for (operation, has_body) in [(get, false), (put, true), (post, true), (delete, false)] {
                let Some(operation) = operation else { continue };
                if operation.responses.responses.contains_key("401") || !needs_token(operation) {
                    continue;
                }
                let common = [
                    ("401", "No token, or a wrong one."),
                    ("403", "The token does not permit it, or none is configured."),
                    ("429", "Too many requests."),
                ];
                let of_bodies =
                    [("413", "The body is too large."), ("415", "The body is not declared to be JSON.")];
                let refusals = common.into_iter().chain(of_bodies.into_iter().filter(|_| has_body));
                for (status, description) in refusals {
                    let content = Content::new(Some(Ref::from_schema_name(ProblemBody::name())));
                    let refusal =
                        ResponseBuilder::new().description(description).content(JSON, content).build();
                    let responses = &mut operation.responses.responses;
                    responses.entry(status.to_owned()).or_insert(RefOr::T(refusal));
                }
            }
        }
    }
}

/// Returns whether an operation needs a token if any is configured.
fn needs_token(operation: &Operation) -> bool {
    let none = SecurityRequirement::default();
    operation.security.as_ref().is_some_and(|needs| needs.iter().all(|need| *need != none))
}

/// Says that replies have every member of the statistics. The defaults are for readers of other versions.
pub(super) struct Statistics;

impl utoipa::Modify for Statistics {
    fn modify(&self, document: &mut utoipa::openapi::OpenApi) {
        let mut parts = vec![(Stats::name().into_owned(), Stats::schema())];
        Stats::schemas(&mut parts);
        let Some(components) = &mut document.components else { return };
        for (name, _) in parts {
            let Some(RefOr::T(Schema::Object(part))) = components.schemas.get_mut(&name) else { continue };
            part.required = part.properties.keys().cloned().collect();
            for property in part.properties.values_mut() {
                match property {
                    RefOr::T(Schema::Object(object)) => object.default = None,
                    RefOr::T(Schema::Array(array)) => array.default = None,
                    RefOr::T(Schema::OneOf(one_of)) => one_of.default = None,
                    _ => {}
                }
            }
        }
    }
}
