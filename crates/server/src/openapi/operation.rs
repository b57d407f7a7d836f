//! The OpenAPI description of one endpoint.

use std::{borrow::Cow, marker::PhantomData};

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde_json::{Value, json};
use surehook_core::idempotency::KEY_BYTES_MAX;

/// Returns the schema of a type.
pub(super) type SchemaFn = fn(&mut SchemaGenerator) -> Schema;

pub(super) fn schema_ref<T: JsonSchema>(generator: &mut SchemaGenerator) -> Schema {
    generator.subschema_for::<T>()
}

/// Schema of a value that is either an `A` or a `B`.
pub(crate) struct OneOf<A, B>(PhantomData<(A, B)>);

impl<A: JsonSchema, B: JsonSchema> JsonSchema for OneOf<A, B> {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> Cow<'static, str> {
        format!("{}_or_{}", A::schema_name(), B::schema_name()).into()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        let choices = [generator.subschema_for::<A>(), generator.subschema_for::<B>()];
        json_schema!({ "anyOf": choices })
    }
}

#[derive(Clone, Debug)]
pub(super) enum RequestBody {
    None,
    Json { schema: SchemaFn, example: Value, required: bool },
    Bytes,
}

#[derive(Clone, Debug)]
pub(super) enum ResponseContent {
    None,
    Json(SchemaFn),
    /// Bytes of one of these media types.
    Media(&'static [&'static str]),
}

#[derive(Clone, Debug)]
pub(super) struct SuccessResponse {
    pub(super) status: u16,
    pub(super) content: ResponseContent,
}

#[derive(Clone, Debug)]
pub(super) struct HeaderParameter {
    pub(super) name: &'static str,
    pub(super) description: &'static str,
    pub(super) schema: Value,
}

/// The OpenAPI description of one endpoint.
#[derive(Clone, Debug)]
pub(crate) struct Operation {
    pub(super) id: String,
    pub(super) summary: String,
    pub(super) description: Option<&'static str>,
    pub(super) path: Vec<(&'static str, SchemaFn)>,
    pub(super) query: Option<SchemaFn>,
    /// Parameters of `query` that this endpoint does not accept.
    pub(super) excluded_query: &'static [&'static str],
    pub(super) headers: Vec<HeaderParameter>,
    pub(super) body: RequestBody,
    pub(super) responses: Vec<SuccessResponse>,
    pub(super) has_etag: bool,
    /// Error statuses with the problem codes that are not common to all endpoints.
    pub(super) problems: Vec<(u16, Vec<&'static str>)>,
    /// Types that only the description refers to.
    pub(super) extra_schemas: Vec<SchemaFn>,
    is_public: bool,
    takes_idempotency_key: bool,
}

impl Operation {
    /// An endpoint that needs a token and uses the store. `id` is stable: clients generate names from it.
    pub(crate) fn new(id: impl Into<String>, summary: impl Into<String>) -> Self {
        Self {
            id: id.into(),
            summary: summary.into(),
            description: None,
            path: Vec::new(),
            query: None,
            excluded_query: &[],
            headers: Vec::new(),
            body: RequestBody::None,
            responses: Vec::new(),
            has_etag: false,
            problems: Vec::new(),
            extra_schemas: Vec::new(),
            is_public: false,
            takes_idempotency_key: true,
        }
    }

    /// An endpoint that needs neither a token nor the store.
    pub(crate) fn public(id: &str, summary: &str) -> Self {
        Self { is_public: true, ..Self::new(id, summary) }
    }

    pub(super) fn is_public(&self) -> bool {
        self.is_public
    }

    /// Text beyond the one-line summary.
    pub(crate) fn description(mut self, description: &'static str) -> Self {
        self.description = Some(description);
        self
    }

    /// Describes the path parameter `{name}`.
    pub(crate) fn path<T: JsonSchema>(mut self, name: &'static str) -> Self {
        self.path.push((name, schema_ref::<T>));
        self
    }

    /// Describes the query parameters.
    pub(crate) fn query<T: JsonSchema>(mut self) -> Self {
        self.query = Some(T::json_schema);
        self
    }

    /// Excludes query parameters that this endpoint does not accept.
    pub(crate) fn exclude_query(mut self, names: &'static [&'static str]) -> Self {
        self.excluded_query = names;
        self
    }

    /// Describes a required JSON body.
    pub(crate) fn body<T: JsonSchema>(mut self, example: Value) -> Self {
        self.body = RequestBody::Json { schema: schema_ref::<T>, example, required: true };
        self
    }

    /// Describes an optional JSON body.
    pub(crate) fn optional_body<T: JsonSchema>(mut self, example: Value) -> Self {
        self.body = RequestBody::Json { schema: schema_ref::<T>, example, required: false };
        self
    }

    /// The body is arbitrary bytes.
    pub(crate) fn accepts_bytes(mut self) -> Self {
        self.body = RequestBody::Bytes;
        self
    }

    /// Describes a JSON response.
    pub(crate) fn returns<T: JsonSchema>(mut self, status: u16) -> Self {
        let content = ResponseContent::Json(schema_ref::<T>);
        self.responses.push(SuccessResponse { status, content });
        self
    }

    /// Describes a response without a body.
    pub(crate) fn returns_nothing(mut self, status: u16) -> Self {
        self.responses.push(SuccessResponse { status, content: ResponseContent::None });
        self
    }

    /// Describes a response of other media types than JSON.
    pub(crate) fn returns_media(mut self, status: u16, types: &'static [&'static str]) -> Self {
        self.responses.push(SuccessResponse { status, content: ResponseContent::Media(types) });
        self
    }

    /// The response has an `ETag`.
    pub(crate) fn with_etag(mut self) -> Self {
        self.has_etag = true;
        self
    }

    /// The response has an `ETag`, and a GET may send `If-None-Match`.
    pub(crate) fn with_conditional_get(self) -> Self {
        let schema = json!({ "type": "string" });
        self.with_etag()
            .header("If-None-Match", "Answers 304 if the current ETag is listed.", schema)
            .returns_nothing(304)
    }

    /// The change may be made conditional with `If-Match`.
    pub(crate) fn with_conditional_write(self) -> Self {
        let schema = json!({ "type": "string" });
        self.header("If-Match", "Changes nothing unless the current ETag is listed.", schema)
    }

    /// Describes an optional request header.
    pub(crate) fn header(
        mut self,
        name: &'static str,
        description: &'static str,
        schema: Value,
    ) -> Self {
        self.headers.push(HeaderParameter { name, description, schema });
        self
    }

    /// Adds the codes of problems that are answered with `status`.
    pub(crate) fn problem(mut self, status: u16, codes: &[&'static str]) -> Self {
        match self.problems.iter_mut().find(|(known, _)| *known == status) {
            Some((_, known)) => known.extend_from_slice(codes),
            None => self.problems.push((status, codes.to_vec())),
        }
        self
    }

    /// Adds the schema of a type that only the description refers to.
    pub(crate) fn refers_to<T: JsonSchema>(mut self) -> Self {
        self.extra_schemas.push(schema_ref::<T>);
        self
    }

    /// The response contains a secret, so it is not stored for an `Idempotency-Key`.
    pub(crate) fn without_idempotency_key(mut self) -> Self {
        self.takes_idempotency_key = false;
        self
    }

    /// Every other authenticated POST accepts an `Idempotency-Key`.
    pub(super) fn with_idempotency_key(self) -> Self {
        if self.is_public || !self.takes_idempotency_key {
            return self;
        }
        let description =
            "A repeated request with the same key returns the first response, for a day.";
        // The key may be quoted; the quotes do not count.
        let length = KEY_BYTES_MAX + 2;
        let pattern = "^[ -~]*[!-~][ -~]*$";
        let schema = json!({ "type": "string", "pattern": pattern, "maxLength": length });
        self.header("Idempotency-Key", description, schema)
    }
}
