//! The description of one call.

use std::{borrow::Cow, marker::PhantomData};

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde_json::{Value, json};
use surehook_core::idempotency::KEY_BYTES_MAX;

/// How the schema of a type is asked for.
pub(super) type SchemaOf = fn(&mut SchemaGenerator) -> Schema;

fn named<T: JsonSchema>(generator: &mut SchemaGenerator) -> Schema {
    generator.subschema_for::<T>()
}

/// What is one of two.
pub(crate) struct Either<A, B>(PhantomData<(A, B)>);

impl<A: JsonSchema, B: JsonSchema> JsonSchema for Either<A, B> {
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

/// What a request holds.
#[derive(Clone, Debug)]
pub(super) enum Taken {
    Nothing,
    Json {
        schema: SchemaOf,
        example: Value,
        required: bool,
    },
    /// Any bytes.
    Bytes,
}

/// What an answer holds.
#[derive(Clone, Debug)]
pub(super) enum Content {
    Nothing,
    Json(SchemaOf),
    /// Any bytes of these media types.
    Other(&'static [&'static str]),
}

/// One answer that is what was asked for.
#[derive(Clone, Debug)]
pub(super) struct Answer {
    pub(super) status: u16,
    pub(super) content: Content,
}

/// A header that a request may have.
#[derive(Clone, Debug)]
pub(super) struct Header {
    pub(super) name: &'static str,
    pub(super) description: &'static str,
    pub(super) schema: Value,
}

/// The description of one call.
#[derive(Clone, Debug)]
pub(crate) struct Op {
    pub(super) id: String,
    pub(super) summary: String,
    pub(super) description: Option<&'static str>,
    pub(super) path: Vec<(&'static str, SchemaOf)>,
    pub(super) query: Option<SchemaOf>,
    /// What of it does not go with this call.
    pub(super) not_in_query: &'static [&'static str],
    pub(super) headers: Vec<Header>,
    pub(super) body: Taken,
    pub(super) answers: Vec<Answer>,
    pub(super) is_tagged: bool,
    /// Statuses with the codes of the problems that have them.
    pub(super) problems: Vec<(u16, Vec<&'static str>)>,
    /// Types that the text speaks of.
    pub(super) also: Vec<SchemaOf>,
    open: bool,
}

impl Op {
    /// A call with a stable name and a sentence. It needs a token, and the store may fail.
    pub(crate) fn new(id: impl Into<String>, summary: impl Into<String>) -> Self {
        let op = Self {
            id: id.into(),
            summary: summary.into(),
            description: None,
            path: Vec::new(),
            query: None,
            not_in_query: &[],
            headers: Vec::new(),
            body: Taken::Nothing,
            answers: Vec::new(),
            is_tagged: false,
            problems: Vec::new(),
            also: Vec::new(),
            open: false,
        };
        op.refuses(401, &["unauthorized"])
            .refuses(403, &["forbidden"])
            .refuses(503, &["overloaded", "disk_full", "store_failed"])
    }

    /// A call that needs no token and no store.
    pub(crate) fn open(id: &str, summary: &str) -> Self {
        let mut op = Self::new(id, summary);
        op.open = true;
        op.problems.clear();
        op
    }

    pub(super) fn is_open(&self) -> bool {
        self.open
    }

    /// More than a sentence.
    pub(crate) fn text(mut self, description: &'static str) -> Self {
        self.description = Some(description);
        self
    }

    /// What `{name}` of the path is. What is none is not found.
    pub(crate) fn path<T: JsonSchema>(mut self, name: &'static str) -> Self {
        self.path.push((name, named::<T>));
        self.refuses(404, &["not_found"])
    }

    /// What the query may hold.
    pub(crate) fn query<T: JsonSchema>(mut self) -> Self {
        self.query = Some(T::json_schema);
        self.refuses(422, &["invalid"])
    }

    /// Parameters of the query that do not go with this call.
    pub(crate) fn without(mut self, names: &'static [&'static str]) -> Self {
        self.not_in_query = names;
        self
    }

    /// What the body is, with an example.
    pub(crate) fn body<T: JsonSchema>(mut self, example: Value) -> Self {
        self.body = Taken::Json { schema: named::<T>, example, required: true };
        self.refuses(400, &["bad_json", "bad_body"])
            .refuses(408, &["body_timeout"])
            .refuses(413, &["body_too_large"])
            .refuses(415, &["not_json"])
            .refuses(422, &["invalid"])
    }

    /// The body may be left out.
    pub(crate) fn may_have_body<T: JsonSchema>(self, example: Value) -> Self {
        let mut op = self.body::<T>(example.clone());
        op.body = Taken::Json { schema: named::<T>, example, required: false };
        op
    }

    /// The body is any bytes.
    pub(crate) fn takes_bytes(mut self) -> Self {
        self.body = Taken::Bytes;
        self
    }

    /// It answers JSON.
    pub(crate) fn answers<T: JsonSchema>(mut self, status: u16) -> Self {
        self.answers.push(Answer { status, content: Content::Json(named::<T>) });
        self
    }

    /// It answers without a body.
    pub(crate) fn answers_nothing(mut self, status: u16) -> Self {
        self.answers.push(Answer { status, content: Content::Nothing });
        self
    }

    /// It answers something that is not JSON.
    pub(crate) fn answers_as(mut self, status: u16, kinds: &'static [&'static str]) -> Self {
        self.answers.push(Answer { status, content: Content::Other(kinds) });
        self
    }

    /// The answer has an `ETag`, and a GET may ask for another one only.
    pub(crate) fn tagged(mut self) -> Self {
        self.is_tagged = true;
        self
    }

    /// A GET of something with an `ETag`.
    pub(crate) fn cached(self) -> Self {
        let schema = json!({ "type": "string" });
        self.tagged()
            .header("If-None-Match", "Answers 304 if the ETag is one of these.", schema)
            .answers_nothing(304)
    }

    /// A change of something with an `ETag`.
    pub(crate) fn guarded_by_tag(self) -> Self {
        let schema = json!({ "type": "string" });
        self.header("If-Match", "Changes nothing unless the ETag is one of these.", schema)
            .refuses(412, &["changed_meanwhile"])
    }

    /// A header that the request may have.
    pub(crate) fn header(
        mut self,
        name: &'static str,
        description: &'static str,
        schema: Value,
    ) -> Self {
        self.headers.push(Header { name, description, schema });
        self
    }

    /// A problem that it may answer.
    pub(crate) fn refuses(mut self, status: u16, codes: &[&'static str]) -> Self {
        match self.problems.iter_mut().find(|(known, _)| *known == status) {
            Some((_, known)) => known.extend_from_slice(codes),
            None => self.problems.push((status, codes.to_vec())),
        }
        self
    }

    /// A type that the text speaks of.
    pub(crate) fn speaks_of<T: JsonSchema>(mut self) -> Self {
        self.also.push(named::<T>);
        self
    }

    /// What holds for every POST of the API.
    pub(super) fn posted(self) -> Self {
        if self.open {
            return self;
        }
        let about =
            "The same wish again, within a day and with the same key, gets the same answer.";
        // Plain or in quotes, which are no part of it.
        let length = KEY_BYTES_MAX + 2;
        let pattern = "^[ -~]*[!-~][ -~]*$";
        let schema = json!({ "type": "string", "pattern": pattern, "maxLength": length });
        self.header("Idempotency-Key", about, schema)
            .refuses(400, &["bad_idempotency_key"])
            .refuses(409, &["idempotency_in_flight"])
            .refuses(422, &["idempotency_key_reused"])
            .refuses(429, &["too_many_idempotency_keys"])
    }
}
