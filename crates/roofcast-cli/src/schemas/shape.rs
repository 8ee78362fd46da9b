//! The shape of answers, read from their JSON Schemas: objects, keys and types, from which every file is written.
//!
//! Knows: the part of JSON Schema that schemars writes for answers. Enumerations of strings are inlined.

use serde_json::{Map, Value};

/// A type of a value.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Type {
    pub(super) kind: Kind,
    pub(super) nullable: bool,
}

/// The JSON type of a value that is not `null`.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Kind {
    Any,
    Boolean,
    Integer,
    Number,
    Text,
    /// A boolean, a number or a string.
    Scalar,
    /// One of several strings.
    OneOf(Vec<String>),
    /// An object by the name of its definition.
    Part(String),
    List(Box<Type>),
    /// A list of two values.
    Pair(Box<Type>),
    /// An object with arbitrary keys.
    Map(Box<Type>),
}

/// An object with its description and keys.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Object {
    pub(super) name: String,
    pub(super) about: String,
    pub(super) fields: Vec<Field>,
}

/// A key of an object.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Field {
    pub(super) key: String,
    pub(super) about: String,
    pub(super) value: Type,
    /// True if the object always has the key.
    pub(super) always: bool,
}

/// Reads schemas that refer to `definitions`.
#[derive(Clone, Copy)]
pub(super) struct Reader<'a> {
    pub(super) definitions: &'a Map<String, Value>,
}

impl Reader<'_> {
    /// Reads the schema of an object; `None` for other types.
    pub(super) fn object(self, name: &str, schema: &Value) -> Option<Object> {
        let always = list(schema, "required");
        let field = |(key, value): (&String, &Value)| Field {
            key: key.clone(),
            about: about(value),
            value: self.value(value),
            always: always.contains(&key.as_str()),
        };
        let keys = schema.get("properties")?.as_object()?;
        let fields = keys.iter().map(field).collect();
        Some(Object { name: name.to_owned(), about: about(schema), fields })
    }

    /// Reads the definition `name`.
    pub(super) fn part(self, name: &str) -> Option<Object> {
        self.object(name, self.definitions.get(name)?)
    }

    /// The objects that `object` contains at any depth, in the order of the keys that first lead to them.
    pub(super) fn parts(self, object: &Object) -> Vec<Object> {
        let mut objects: Vec<Object> = Vec::new();
        self.collect(object, &mut objects);
        objects
    }

    fn collect(self, object: &Object, found: &mut Vec<Object>) {
        for name in object.fields.iter().filter_map(|field| part_of(&field.value)) {
            if found.iter().any(|known| known.name == name) {
                continue;
            }
            let part = self.part(name).unwrap();
            found.push(part.clone());
            self.collect(&part, found);
        }
    }

    fn value(self, schema: &Value) -> Type {
        if let Some(options) = schema.get("anyOf").and_then(Value::as_array) {
            let values: Vec<&Value> = options.iter().filter(|option| option["type"] != "null").collect();
            let [value] = values[..] else { panic!("several types: {schema}") };
            return Type { nullable: values.len() < options.len(), ..self.value(value) };
        }
        if let Some(target) = schema.get("$ref").and_then(Value::as_str) {
            let name = target.rsplit('/').next().unwrap();
            let kind = match self.definitions[name].get("properties") {
                Some(_) => Kind::Part(name.to_owned()),
                None => return self.value(&self.definitions[name]),
            };
            return Type { kind, nullable: false };
        }
        let names = match &schema["type"] {
            Value::Array(names) => names.iter().filter_map(Value::as_str).collect(),
            name => Vec::from_iter(name.as_str()),
        };
        if names == ["boolean", "number", "string"] {
            return Type { kind: Kind::Scalar, nullable: false };
        }
        let name = names.iter().find(|name| **name != "null");
        Type { kind: self.kind(name.copied(), schema), nullable: names.contains(&"null") }
    }

    fn kind(self, name: Option<&str>, schema: &Value) -> Kind {
        if let Some(options) = schema.get("oneOf").and_then(Value::as_array) {
            let texts = options
                .iter()
                .flat_map(|option| [list(option, "enum"), Vec::from_iter(option["const"].as_str())].concat());
            let texts: Vec<String> = texts.map(str::to_owned).collect();
            return if texts.is_empty() { Kind::Any } else { Kind::OneOf(texts) };
        }
        match name {
            Some("boolean") => Kind::Boolean,
            Some("integer") => Kind::Integer,
            Some("number") => Kind::Number,
            Some("string") => match list(schema, "enum") {
                texts if texts.is_empty() => Kind::Text,
                texts => Kind::OneOf(texts.into_iter().map(str::to_owned).collect()),
            },
            Some("array") => {
                let item = schema.get("items").or_else(|| schema["prefixItems"].get(0));
                let item = Box::new(item.map_or(ANY, |item| self.value(item)));
                if schema["maxItems"] == 2 { Kind::Pair(item) } else { Kind::List(item) }
            }
            Some("object") => {
                // Keys of a map that are an enumeration are properties of one type.
                let inner = schema["properties"].as_object().and_then(|keys| keys.values().next());
                let inner = inner.or(schema.get("additionalProperties"));
                Kind::Map(Box::new(inner.map_or(ANY, |inner| self.value(inner))))
            }
            _ => Kind::Any,
        }
    }
}

const ANY: Type = Type { kind: Kind::Any, nullable: false };

/// Name of the object that a value is, or that its items are.
fn part_of(value: &Type) -> Option<&str> {
    match &value.kind {
        Kind::Part(name) => Some(name),
        Kind::List(inner) | Kind::Pair(inner) | Kind::Map(inner) => part_of(inner),
        _ => None,
    }
}

fn about(schema: &Value) -> String {
    schema["description"].as_str().unwrap_or_default().to_owned()
}

fn list<'a>(schema: &'a Value, key: &str) -> Vec<&'a str> {
    schema[key].as_array().into_iter().flatten().filter_map(Value::as_str).collect()
}
