//! The shape of a value as it is serialized: names of structs, keys and types of values.

use serde::ser::{self, Impossible, Serialize};

/// The JSON types that a value may have.
#[derive(Debug, Clone, PartialEq, Default)]
pub(super) struct Shape {
    pub(super) null: bool,
    pub(super) number: bool,
    pub(super) boolean: bool,
    pub(super) string: bool,
    pub(super) list: Option<Box<Shape>>,
    pub(super) map: Option<Box<Shape>>,
    pub(super) object: Option<Object>,
}

/// A struct, or the keys of a struct that is flattened into another.
#[derive(Debug, Clone, PartialEq, Default)]
pub(super) struct Object {
    /// Name of the struct; `None` if it is flattened into another.
    pub(super) name: Option<&'static str>,
    /// Keys in order, each with its shape and true if every value seen had the key.
    pub(super) fields: Vec<(String, Shape, bool)>,
}

impl Shape {
    pub(super) fn of<T: Serialize + ?Sized>(value: &T) -> Shape {
        value.serialize(Tracer).unwrap()
    }

    /// Extends this shape by another, so that it accepts the values of both.
    pub(super) fn or(&mut self, other: &Shape) {
        self.null |= other.null;
        self.number |= other.number;
        self.boolean |= other.boolean;
        self.string |= other.string;
        for (own, theirs) in [(&mut self.list, &other.list), (&mut self.map, &other.map)] {
            match (own.as_mut(), theirs) {
                (Some(own), Some(theirs)) => own.or(theirs),
                (None, Some(theirs)) => *own = Some(theirs.clone()),
                _ => {}
            }
        }
        match (&mut self.object, &other.object) {
            (Some(own), Some(theirs)) => own.or(theirs),
            (own @ None, Some(theirs)) => *own = Some(theirs.clone()),
            _ => {}
        }
    }
}

impl Object {
    fn or(&mut self, other: &Object) {
        for (key, _, always) in &mut self.fields {
            *always &= other.fields.iter().any(|(theirs, ..)| theirs == key);
        }
        for (key, shape, always) in &other.fields {
            match self.fields.iter_mut().find(|(own, ..)| own == key) {
                Some((_, own, both)) => {
                    own.or(shape);
                    *both &= always;
                }
                None => self.fields.push((key.clone(), shape.clone(), false)),
            }
        }
    }
}

#[derive(Debug)]
pub(super) struct Never(String);

impl std::fmt::Display for Never {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Never {}

impl ser::Error for Never {
    fn custom<T: std::fmt::Display>(message: T) -> Never {
        Never(message.to_string())
    }
}

type Traced = Result<Shape, Never>;

struct Tracer;

fn number() -> Traced {
    Ok(Shape { number: true, ..Shape::default() })
}

macro_rules! numbers {
    ($($name:ident: $kind:ty),*) => { $(fn $name(self, _: $kind) -> Traced { number() })* };
}

impl ser::Serializer for Tracer {
    type Ok = Shape;
    type Error = Never;
    type SerializeSeq = List;
    type SerializeTuple = List;
    type SerializeTupleStruct = List;
    type SerializeTupleVariant = Impossible<Shape, Never>;
    type SerializeMap = Keys;
    type SerializeStruct = Keys;
    type SerializeStructVariant = Impossible<Shape, Never>;

    numbers!(serialize_i8: i8, serialize_i16: i16, serialize_i32: i32, serialize_i64: i64, serialize_i128: i128,
        serialize_u8: u8, serialize_u16: u16, serialize_u32: u32, serialize_u64: u64, serialize_u128: u128,
        serialize_f32: f32, serialize_f64: f64);

    fn serialize_bool(self, _: bool) -> Traced {
        Ok(Shape { boolean: true, ..Shape::default() })
    }

    fn serialize_char(self, _: char) -> Traced {
        self.serialize_str("")
    }

    fn serialize_str(self, _: &str) -> Traced {
        Ok(Shape { string: true, ..Shape::default() })
    }

    fn serialize_bytes(self, _: &[u8]) -> Traced {
        Err(Never("bytes have no place in JSON".to_owned()))
    }

    fn serialize_none(self) -> Traced {
        Ok(Shape { null: true, ..Shape::default() })
    }

    fn serialize_some<T: Serialize + ?Sized>(self, value: &T) -> Traced {
        Ok(Shape { null: true, ..Shape::of(value) })
    }

    fn serialize_unit(self) -> Traced {
        self.serialize_none()
    }

    fn serialize_unit_struct(self, _: &'static str) -> Traced {
        self.serialize_none()
    }

    fn serialize_unit_variant(self, _: &'static str, _: u32, _: &'static str) -> Traced {
        self.serialize_str("")
    }

    fn serialize_newtype_struct<T: Serialize + ?Sized>(self, _: &'static str, value: &T) -> Traced {
        Ok(Shape::of(value))
    }

    fn serialize_newtype_variant<T: Serialize + ?Sized>(
        self,
        name: &'static str,
        _: u32,
        _: &'static str,
        _: &T,
    ) -> Traced {
        Err(Never(format!("{name} has a variant with a value")))
    }

    fn serialize_seq(self, _: Option<usize>) -> Result<List, Never> {
        Ok(List(Shape::default()))
    }

    fn serialize_tuple(self, _: usize) -> Result<List, Never> {
        Ok(List(Shape::default()))
    }

    fn serialize_tuple_struct(self, _: &'static str, _: usize) -> Result<List, Never> {
        Ok(List(Shape::default()))
    }

    fn serialize_tuple_variant(
        self,
        name: &'static str,
        _: u32,
        _: &'static str,
        _: usize,
    ) -> Result<Self::SerializeTupleVariant, Never> {
        Err(Never(format!("{name} has a variant with values")))
    }

    // serde serializes a struct as a map of unknown length only if the struct has flattened keys.
    fn serialize_map(self, length: Option<usize>) -> Result<Keys, Never> {
        Ok(Keys { object: length.is_none().then(Object::default), map: Shape::default(), key: String::new() })
    }

    fn serialize_struct(self, name: &'static str, _: usize) -> Result<Keys, Never> {
        let object = Object { name: Some(name), fields: Vec::new() };
        Ok(Keys { object: Some(object), map: Shape::default(), key: String::new() })
    }

    fn serialize_struct_variant(
        self,
        name: &'static str,
        _: u32,
        _: &'static str,
        _: usize,
    ) -> Result<Self::SerializeStructVariant, Never> {
        Err(Never(format!("{name} has a variant with keys")))
    }
}

struct List(Shape);

macro_rules! lists {
    ($($kind:ident: $add:ident),*) => { $(impl ser::$kind for List {
        type Ok = Shape;
        type Error = Never;

        fn $add<T: Serialize + ?Sized>(&mut self, value: &T) -> Result<(), Never> {
            self.0.or(&Shape::of(value));
            Ok(())
        }

        fn end(self) -> Traced {
            Ok(Shape { list: Some(Box::new(self.0)), ..Shape::default() })
        }
    })* };
}

lists!(SerializeSeq: serialize_element, SerializeTuple: serialize_element, SerializeTupleStruct: serialize_field);

struct Keys {
    object: Option<Object>,
    map: Shape,
    key: String,
}

impl Keys {
    fn add<T: Serialize + ?Sized>(&mut self, key: &str, value: &T) {
        match &mut self.object {
            Some(object) => object.fields.push((key.to_owned(), Shape::of(value), true)),
            None => self.map.or(&Shape::of(value)),
        }
    }

    fn done(self) -> Traced {
        let map = self.object.is_none().then(|| Box::new(self.map));
        Ok(Shape { object: self.object, map, ..Shape::default() })
    }
}

impl ser::SerializeMap for Keys {
    type Ok = Shape;
    type Error = Never;

    fn serialize_key<T: Serialize + ?Sized>(&mut self, key: &T) -> Result<(), Never> {
        let text = serde_json::to_value(key).unwrap();
        self.key = text.as_str().map_or_else(|| text.to_string(), str::to_owned);
        Ok(())
    }

    fn serialize_value<T: Serialize + ?Sized>(&mut self, value: &T) -> Result<(), Never> {
        let key = std::mem::take(&mut self.key);
        self.add(&key, value);
        Ok(())
    }

    fn end(self) -> Traced {
        self.done()
    }
}

impl ser::SerializeStruct for Keys {
    type Ok = Shape;
    type Error = Never;

    fn serialize_field<T: Serialize + ?Sized>(&mut self, key: &'static str, value: &T) -> Result<(), Never> {
        self.add(key, value);
        Ok(())
    }

    fn end(self) -> Traced {
        self.done()
    }
}
